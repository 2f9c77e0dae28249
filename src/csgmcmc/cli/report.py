"""`csgmcmc report`: print the scores of a run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from csgmcmc.cli.messages import fail
from csgmcmc.report.run import check_complete, overview, read_record


def report(folder: Annotated[Path, typer.Argument(help="Output folder of csgmcmc run.")]) -> None:
    """Print the scores of a run again."""
    try:
        if not (folder / "store.json").exists():
            raise fail(f"{folder} is not the folder of a run: it has no store.json")
        record = read_record(folder)
        if not record.get("chains"):
            raise fail(
                f"{folder} is a draw store without scores, which csgmcmc run adds at the end of a "
                f"run; csgmcmc inspect {folder} shows its contents"
            )
        check_complete(record, folder)
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
    Console().print(overview(record, folder), soft_wrap=True)
