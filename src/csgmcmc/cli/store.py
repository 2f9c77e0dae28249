"""`csgmcmc inspect` and `csgmcmc report`: the contents of a draw store, printed or as a page."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

from csgmcmc.draws import DrawStore
from csgmcmc.errors import StoreWarning
from csgmcmc.loop.checkpoint import steps_at_checkpoint
from csgmcmc.report import store as store_report

Folder = Annotated[Path, typer.Argument(help="Folder of a draw store.")]


def inspect(
    folder: Folder,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read and check draws.")] = False,
) -> None:
    """Print the contents of a draw store; exits with code 1 if a file is damaged."""
    if not (folder / "store.json").exists():
        raise ValueError(f"{folder} is not a draw store: it has no store.json")
    with warnings.catch_warnings(action="ignore", category=StoreWarning):  # printed below
        draws = DrawStore(folder)
    damages = None if quick else draws.verify()
    steps = {number: steps_at_checkpoint(folder, number) for number in draws.headers()}
    taken = {number: step for number, step in steps.items() if step is not None}
    typer.echo(store_report.overview(draws, damages, taken))
    if draws.problems or damages:
        raise typer.Exit(1)


def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="File of the page; FOLDER/report.html.")] = None,
) -> None:
    """Make a page of what a folder holds; posterior.report(loader) in Python adds scores."""
    from csgmcmc.report import report_folder  # noqa: PLC0415  (slow to import)

    page = report_folder(folder).save(out or folder / "report.html")
    typer.echo(f"page: {page}")
