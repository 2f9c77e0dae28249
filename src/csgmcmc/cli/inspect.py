"""`csgmcmc inspect`: the contents of a draw store."""

import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from csgmcmc.draws import DrawStore
from csgmcmc.errors import StoreWarning
from csgmcmc.loop.checkpoint import steps_at_checkpoint
from csgmcmc.report import store as store_report


def open_store(folder: Path) -> DrawStore:
    """The store in a folder; its problems are shown by `csgmcmc inspect`."""
    if not (folder / "store.json").exists():
        raise ValueError(f"{folder} is not a draw store: it has no store.json")
    with warnings.catch_warnings(action="ignore", category=StoreWarning):
        return DrawStore(folder)


def inspect(
    folder: Annotated[Path, typer.Argument(help="Folder of a draw store.")],
    quick: Annotated[bool, typer.Option("--quick", help="Do not read and check draws.")] = False,
) -> None:
    """Print the contents of a draw store; exits with code 1 if a file is damaged or left over.

    Files that a killed run left over are removed when its chain is resumed.
    """
    draws = open_store(folder)
    damages = None if quick else draws.verify()
    steps = {number: steps_at_checkpoint(folder, number) for number in draws.headers()}
    taken = {number: step for number, step in steps.items() if step is not None}
    Console().print(store_report.overview(draws, damages, taken), highlight=False, soft_wrap=True)
    if draws.problems or damages:
        raise typer.Exit(1)
