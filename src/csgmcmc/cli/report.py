"""`csgmcmc report`: make a page of the draws in a folder."""

from pathlib import Path
from typing import Annotated

import typer

from csgmcmc.cli.inspect import open_store


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a draw store.")],
    out: Annotated[Path | None, typer.Option(help="File of the page; FOLDER/report.html.")] = None,
) -> None:
    """Make a page of what a folder holds; posterior.report(loader) in Python adds scores."""
    store = open_store(folder)
    try:
        import matplotlib  # noqa: F401, PLC0415  (an extra)
    except ImportError as error:
        raise ValueError("matplotlib is missing: pip install 'csgmcmc[plot]'") from error
    from csgmcmc.report import report_folder  # noqa: PLC0415  (slow to import)

    page = report_folder(store.path).save(out or folder / "report.html")
    typer.echo(f"page: {page}")
