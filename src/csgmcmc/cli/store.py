"""`csgmcmc inspect` and `csgmcmc report`: the contents of a draw store, printed or as a page."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from csgmcmc.loop.checkpoint import steps_at_checkpoint
from csgmcmc.randomness import seeded
from csgmcmc.report.store import open_store, overview

Folder = Annotated[Path, typer.Argument(help="Folder of a draw store.")]


def inspect(
    folder: Folder,
    quick: Annotated[bool, typer.Option("--quick", help="Do not read and check draws.")] = False,
) -> None:
    """Print the contents of a draw store; exits with code 1 if a file is damaged."""
    draws = open_store(folder)
    damages = None if quick else draws.verify()
    taken = {number: steps_at_checkpoint(folder, number) for number in draws.headers()}
    typer.echo(overview(draws, damages, taken))
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
    stores = [open_store(folder) for folder in folders]
    function = None if posterior is None else load_function(posterior)
    made = [function(store) for store in stores] if function else []
    if not all(isinstance(each, tuple) and len(each) == 2 for each in made):
        raise ValueError("the function of posterior must return a Posterior and a loader")
    if len(made) == 2:
        page = compare(made[0][0], made[1][0], made[0][1])
    elif len(stores) == 2:
        page = compare_stores(stores[0], stores[1])
    else:
        page = made[0][0].report(made[0][1]) if made else report_folder(folders[0])
    typer.echo(f"page: {page.save(out or folders[-1] / 'report.html')}")


def load_function(address: str) -> Callable[..., Any]:
    """Import the function at "path/to/file.py:function"."""
    file, _, name = address.rpartition(":")
    path = Path(file).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"{address!r} must be FILE.py:FUNCTION, a function in a file that exists")
    sys.path.insert(0, str(path.parent))
    with seeded(0):  # so that data that are made while it is imported are the same each time
        module = importlib.import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path:
        raise ValueError(f"{file} has the name of another module: rename the file")
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{file} has no function {name!r}")
    return function
