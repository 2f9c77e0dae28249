"""`csgmcmc run`: run the chains of a user's own script."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from csgmcmc.arguments import check_count, counted
from csgmcmc.cli.messages import errors_in_one_line, warnings_in_one_line
from csgmcmc.cli.script import load_function, make_chain, takes
from csgmcmc.devices import check_device
from csgmcmc.distributed import ProcessLayout, init_distributed, shutdown_distributed
from csgmcmc.draws import DrawStore
from csgmcmc.loop import Chain
from csgmcmc.randomness import seeded
from csgmcmc.stacked import Stack

CHAIN_SEED_OFFSET = 1000  # between the seeds of two chains
BATCH_SEED_OFFSET = 500  # between the seed of a chain's initial weights and that of its batches


def run(
    script: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="A function that returns a Chain.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the draws; runs/FILE.")] = None,
    chains: Annotated[int | None, typer.Option(help="By default one per process.")] = None,
    device: Annotated[str | None, typer.Option(help="Where the chains run, e.g. cuda:1.")] = None,
    resume: Annotated[bool, typer.Option(help="Resume a run that was stopped.")] = True,
) -> None:
    """Run the chains of your own script, in sequence or under torchrun at the same time."""
    is_main = os.environ.get("RANK", "0") == "0"  # the one process of torchrun that prints
    folder = out or Path("runs", Path(script.rpartition(":")[0].removesuffix(".py")).name)
    try:
        with errors_in_one_line(), warnings_in_one_line():
            store = _run_chains(load_function(script), folder, chains, device, resume)
    except KeyboardInterrupt as error:
        if is_main:
            where = getattr(error, "__notes__", ["stopped"])[0].partition(";")[0]
            typer.echo(f"csgmcmc: {where}; the same command resumes the run", err=True)
        raise typer.Exit(130) from None
    if is_main:
        of = f"of {counted(len(store.chain_ids), 'chain')}"
        typer.echo(f"{store.path}: {counted(len(store), 'draw')} {of}")
        typer.echo(f"csgmcmc inspect {store.path} lists them, csgmcmc report makes a page")


def _run_chains(
    function: Callable[..., Any], out: Path, chains: int | None, device: str | None, resume: bool
) -> DrawStore:
    """Run the chains of this process; returns the store, as it is when all have ended."""
    world, rank = (int(os.environ.get(name, at)) for name, at in (("WORLD_SIZE", 1), ("RANK", 0)))
    total = world if chains is None else check_count("chains", chains, at_least=1)
    if total < world:  # several processes for each chain
        here = init_distributed(total)
        numbers = [here.chain_id]
    else:  # each chain is alone in its process, and needs no mesh
        if total % world:
            raise ValueError(f"chains={total} cannot be divided among {world} processes")
        here = replace(init_distributed(), mesh=None)
        numbers = range(rank, total, world)
    if device is not None:
        if not takes(function, "device") and not takes(function, "layout"):
            raise ValueError("device is given, but the function takes neither device nor layout")
        here = replace(here, device=check_device(device))
    path = out
    for number in numbers:
        layout = replace(here, chain_id=number, chains=total)
        chain = _make_chain(function, out, layout)
        path = chain.draws.path  # pyright: ignore[reportAttributeAccessIssue]
        with seeded(CHAIN_SEED_OFFSET * number + BATCH_SEED_OFFSET + layout.replica_id):
            chain.run(resume=resume)
    shutdown_distributed()
    return DrawStore(path)


def _make_chain(function: Callable[..., Any], out: Path, layout: ProcessLayout) -> Chain:
    """Call the function for one chain, and check that it used its arguments."""
    number, offered = layout.chain_id, {"layout": layout, "device": layout.device}
    offered |= {"chain_id": number, "draws": DrawStore(out)}
    chain = make_chain(function, seed=CHAIN_SEED_OFFSET * number, **offered)
    if not isinstance(chain.draws, DrawStore):
        raise ValueError("draws are in memory: let the function take draws, and give it to Chain")
    expected = number * (chain.model.chains if isinstance(chain.model, Stack) else 1)
    if chain.chain_id != expected:
        wrong = f"the function returned chain {chain.chain_id} in place of chain {expected}"
        raise ValueError(f"{wrong}: let it take chain_id, and give it to the sampler")
    if chain.stepper.layout.replicas != layout.replicas:
        raise ValueError("several processes share a chain: take layout, and give it to Chain")
    return chain
