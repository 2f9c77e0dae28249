"""The command line."""

import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

import csgmcmc
from csgmcmc.draws import DrawStore, StoreError, StoreWarning
from csgmcmc.report import store as store_report

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Cyclical stochastic-gradient MCMC for PyTorch.",
)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Cyclical stochastic-gradient MCMC for PyTorch."""
    if version:
        typer.echo(csgmcmc.__version__)
        raise typer.Exit


class Part(StrEnum):
    """Parts of the demo."""

    MIXTURE = "mixture"
    DIGITS = "digits"


@app.command()
def demo(
    part: Annotated[Part | None, typer.Option(help="Only this part.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(help="Mixture: iterations of each chain.")] = 50_000,
    chains: Annotated[int, typer.Option(help="Mixture: chains, run side by side.")] = 4,
    digits_steps: Annotated[int, typer.Option(help="Digits: steps of each method.")] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of starts and noise.")] = 0,
    seeds: Annotated[int, typer.Option(help="Digits: seeds, from the first on.")] = 1,
) -> None:
    """The method in two minutes: 25 Gaussians, and a network on handwritten digits."""
    try:
        from csgmcmc import demo as run  # noqa: PLC0415  (needs matplotlib, which is an extra)
    except ModuleNotFoundError as error:
        raise _fail(f"{error.name} is missing: pip install 'csgmcmc[plot]'") from error
    console = Console()
    torch.set_num_threads(1)  # the tensors are tiny: a second thread only costs
    try:
        shows = []  # checked before the first of them runs
        if part is not Part.DIGITS:
            mixture = run.Mixture(steps=steps, chains=chains, seed=seed)
            out.mkdir(parents=True, exist_ok=True)
            shows.append(lambda: run.show_mixture(mixture, out, console))
        if part is not Part.MIXTURE:
            digits = run.Digits(steps=digits_steps, first_seed=seed, seeds=seeds)
            shows.append(lambda: run.show_digits(digits, console))
        for show in shows:
            show()
    except (ValueError, OSError) as error:
        raise _fail(str(error)) from error


@app.command()
def inspect(
    store: Annotated[Path, typer.Argument(help="Folder of a draw store.")],
    quick: Annotated[bool, typer.Option("--quick", help="Do not read the draws.")] = False,
) -> None:
    """Print what a draw store holds: chains, cycles, draws, sizes, provenance, integrity.

    Ends with code 1 if something is damaged or left over.
    """
    if not (store / "store.json").exists():
        raise _fail(f"{store} is not a draw store: it has no store.json")
    try:
        with warnings.catch_warnings(action="ignore", category=StoreWarning):
            draws = DrawStore(store)  # its problems are printed below
    except StoreError as error:
        raise _fail(str(error)) from error
    damages = [] if quick else draws.verify()
    Console().print(store_report.overview(draws, damages), highlight=False, soft_wrap=True)
    if draws.problems or damages:
        raise typer.Exit(1)


def _fail(message: str) -> typer.Exit:
    """Say what is wrong in one line, and end with code 2."""
    typer.secho(f"csgmcmc: {message}", err=True, fg="red")
    return typer.Exit(2)
