"""`csgmcmc inspect`: the contents of a draw store."""

import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from csgmcmc.chain.checkpoint import steps_at_checkpoint
from csgmcmc.cli.messages import fail
from csgmcmc.draws import DrawStore
from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.files import readable_io_errors
from csgmcmc.report import store as store_report


def inspect(
    store: Annotated[Path, typer.Argument(help="Folder of a draw store.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read the draws: their contents are not checked.")
    ] = False,
) -> None:
    """Print the contents of a draw store: chains, cycles, draws, sizes, provenance, integrity.

    Exits with code 1 if a file is damaged or left over. What a killed run has left over is removed
    when its chain is resumed.
    """
    try:
        with readable_io_errors(store, "reading the store", writing=False):
            if not (store / "store.json").exists():
                raise fail(f"{store} is not a draw store: it has no store.json")
        with warnings.catch_warnings(action="ignore", category=StoreWarning):
            draws = DrawStore(store)  # its problems are printed below
    except (StoreError, OSError) as error:
        raise fail(str(error)) from error
    damages = None if quick else draws.verify()
    taken = {chain_id: steps_at_checkpoint(store, chain_id) for chain_id in draws.headers()}
    known = {chain_id: steps for chain_id, steps in taken.items() if steps is not None}
    Console().print(store_report.overview(draws, damages, known), highlight=False, soft_wrap=True)
    if draws.problems or damages:
        raise typer.Exit(1)
