"""`csgmcmc inspect` and `csgmcmc report`: the contents of a draw store, printed or as a page."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

from csgmcmc.cli.run import load_function
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
    draws = _open(folder)
    damages = None if quick else draws.verify()
    steps = {number: steps_at_checkpoint(folder, number) for number in draws.headers()}
    taken = {number: step for number, step in steps.items() if step is not None}
    typer.echo(store_report.overview(draws, damages, taken))
    if draws.problems or damages:
        raise typer.Exit(1)


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Folder of a draw store, or two to compare.")
    ],
    out: Annotated[Path | None, typer.Option(help="File of the page; FOLDER/report.html.")] = None,
    posterior: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="A function that takes draws, and returns their Posterior and held-out data.",
        ),
    ] = None,
) -> None:
    """Make a page of a folder, or of two side by side; with a posterior it has scores."""
    from csgmcmc.report import compare, report_folder  # noqa: PLC0415  (slow to import)
    from csgmcmc.report.comparison import compare_stores  # noqa: PLC0415

    if len(folders) > 2:
        raise ValueError(f"one folder, or two to compare, got {len(folders)}")
    stores = [_open(folder) for folder in folders]
    made = []
    if posterior is not None:
        made = [load_function(posterior)(store) for store in stores]
        if not all(isinstance(each, tuple) and len(each) == 2 for each in made):
            raise ValueError("the function of posterior must return a Posterior and a loader")
    if len(made) == 2:
        page = compare(made[0][0], made[1][0], made[0][1])
    elif len(stores) == 2:
        page = compare_stores(stores[0], stores[1])
    else:
        page = made[0][0].report(made[0][1]) if made else report_folder(folders[0])
    typer.echo(f"page: {page.save(out or folders[-1] / 'report.html')}")


def _open(folder: Path) -> DrawStore:
    if not (folder / "store.json").exists():
        raise ValueError(f"{folder} is not a draw store: it has no store.json")
    with warnings.catch_warnings(action="ignore", category=StoreWarning):  # inspect prints them
        return DrawStore(folder)
