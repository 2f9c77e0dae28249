"""`csgmcmc run`: run the chains of a user's own script."""

import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from csgmcmc.arguments import check_count, counted
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
        if not {"device", "layout"} & signature(function).parameters.keys():
            raise ValueError("device is given, but the function takes neither device nor layout")
        try:
            here = replace(here, device=torch.device(device))
        except RuntimeError as error:
            raise ValueError(f"device={device}: {error}") from error
    path = out
    for number in numbers:
        layout = replace(here, chain_id=number, chains=total)
        chain = make_chain(function, out, layout)
        path = chain.draws.path  # pyright: ignore[reportAttributeAccessIssue]
        with seeded(CHAIN_SEED_OFFSET * number + BATCH_SEED_OFFSET + layout.replica_id):
            chain.run(resume=resume)
    shutdown_distributed()
    return DrawStore(path)


def make_chain(function: Callable[..., Any], out: Path, layout: ProcessLayout) -> Chain:
    """Call the function with those arguments for the chain of `layout` that it takes.

    The global generators are seeded, so that the initial weights are the same each time.
    """
    number, taken = layout.chain_id, signature(function).parameters
    seed = CHAIN_SEED_OFFSET * number
    offered = {"draws": DrawStore(out), "chain_id": number, "seed": seed}
    offered |= {"device": layout.device, "layout": layout}
    with seeded(seed):
        chain = function(**{name: value for name, value in offered.items() if name in taken})
    if not isinstance(chain, Chain):
        raise ValueError(f"the function must return a csgmcmc.Chain, got {type(chain).__name__}")
    if not isinstance(chain.draws, DrawStore):
        raise ValueError("draws are in memory: let the function take draws, and give it to Chain")
    expected = number * (chain.model.chains if isinstance(chain.model, Stack) else 1)
    if chain.chain_id != expected:
        wrong = f"the function returned chain {chain.chain_id} in place of chain {expected}"
        raise ValueError(f"{wrong}: let it take chain_id, and give it to the sampler")
    if chain.stepper.layout.replicas != layout.replicas:
        raise ValueError("several processes share a chain: take layout, and give it to Chain")
    return chain


def load_function(address: str) -> Callable[..., Any]:
    """Import the function at "path/to/file.py:function"."""
    file, _, name = address.rpartition(":")
    path = Path(file).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(f"{address!r} must be FILE.py:FUNCTION, a function in a file that exists")
    sys.path.insert(0, str(path.parent))
    with seeded(0):  # module-level data are the same in all processes, and when resuming
        module = importlib.import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path:
        raise ValueError(f"{file} has the name of another module: rename the file")
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{file} has no function {name!r}")
    return function
