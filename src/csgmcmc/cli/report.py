"""`csgmcmc report`: a page of results."""

from pathlib import Path
from typing import Annotated

import typer

from csgmcmc.cli.messages import fail, missing


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of results of csgmcmc reproduce.")],
) -> None:
    """Make a page of results: FOLDER/index.html, and README.md with figures/*.svg."""
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
