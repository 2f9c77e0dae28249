"""`csgmcmc report`: a page of results."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from csgmcmc.cli.messages import fail, missing
from csgmcmc.report.run import overview, read_record


def report(
    folder: Annotated[
        Path, typer.Argument(help="Folder of csgmcmc reproduce's results, or of csgmcmc run.")
    ],
) -> None:
    """Make a page of results: FOLDER/index.html, and README.md with figures/*.svg.

    Of the folder of a run, print the scores again.
    """
    if (folder / "store.json").exists():
        _print_run(folder)
        return
    try:
        from csgmcmc.report.write import write_report  # noqa: PLC0415  (needs matplotlib)
    except ModuleNotFoundError as error:
        raise missing(error) from error
    if not folder.is_dir():
        raise fail(f"there is no folder {folder}")
    try:
        written = write_report(folder)
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
    for path in written:
        typer.echo(path)


def _print_run(folder: Path) -> None:
    try:
        record = read_record(folder)
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
    if not record.get("chains"):
        raise fail(
            f"{folder} is a draw store without scores, which csgmcmc run makes when a run is done; "
            f"csgmcmc inspect {folder} shows what it holds"
        )
    Console().print(overview(record, folder), soft_wrap=True)
