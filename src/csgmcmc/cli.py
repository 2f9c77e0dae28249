"""The command line."""

import os
import warnings
from concurrent.futures import BrokenExecutor
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

import csgmcmc
from csgmcmc.chain import leave
from csgmcmc.draws import DrawStore, StoreError, StoreWarning
from csgmcmc.experiments import find_experiments
from csgmcmc.experiments import reproduce as run_experiment
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
        raise _missing(error) from error
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


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="The experiment; --list names them.")] = None,
    preset: Annotated[str, typer.Option(help="Its settings: paper, laptop, smoke.")] = "laptop",
    seeds: Annotated[int | None, typer.Option(help="In place of the preset's.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs/reproduce"),
    workers: Annotated[
        int | None, typer.Option(help="Processes, of one thread each; all cores by default.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Print what there is, and stop.")] = False,
) -> None:
    """Reproduce an experiment of the paper: its tables, with the paper's numbers beside ours.

    Results go to OUT/NAME.json as they come; a run that was stopped goes on where it was.
    """
    try:
        from csgmcmc.report import console as screen  # noqa: PLC0415  (needs matplotlib)
        from csgmcmc.report.pages import make_page  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    experiments = find_experiments()
    if show:
        rows = [(each.name, each.summary, list(each.presets)) for each in experiments.values()]
        Console().print(screen.catalogue(rows))
        return
    if name not in experiments:
        problem = f"there is no experiment {name!r}." if name else "which experiment?"
        raise _fail(f"{problem} Choose one of {', '.join(experiments)}")
    if data is not None and not data.is_dir():
        raise _fail(f"there is no folder {data}, which --data names")
    torch.set_num_threads(1)  # the tensors are tiny: a second thread only costs
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    speaks = os.environ.get("RANK", "0") == "0"  # one of the processes that torchrun starts
    if workers is None:
        # Jobs are alike and need little memory: a core each is the fastest.
        workers = (os.cpu_count() or 1) if alone else 1
    try:
        with screen.JobsBar(name, Console(stderr=True, quiet=not speaks)) as bar:
            results = run_experiment(
                experiments[name],
                preset,
                out,
                seeds=seeds,
                data=data,
                workers=workers,
                on_start=bar.on_start,
                on_job=bar.on_job,
            )
    except (ValueError, OSError) as error:
        raise _fail(str(error)) from error
    except BrokenExecutor as error:
        raise _fail("a worker died, perhaps for want of memory: try fewer --workers") from error
    except KeyboardInterrupt:
        typer.echo("csgmcmc: stopped; the same command goes on where it was", err=True)
        raise typer.Exit(130) from None
    leave()
    if not speaks:
        return
    Console().print(screen.overview(make_page(vars(results))))
    typer.echo(f"results: {out / f'{name}.json'}; csgmcmc report {out} makes a page of them")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder of results of csgmcmc reproduce.")],
) -> None:
    """Make a page of results: FOLDER/index.html, and README.md with figures/*.svg."""
    try:
        from csgmcmc.report.write import write_report  # noqa: PLC0415  (needs matplotlib)
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    if not folder.is_dir():
        raise _fail(f"there is no folder {folder}")
    try:
        written = write_report(folder)
    except (ValueError, OSError) as error:
        raise _fail(str(error)) from error
    for path in written:
        typer.echo(path)


def _missing(error: ModuleNotFoundError) -> typer.Exit:
    return _fail(f"{error.name} is missing: pip install 'csgmcmc[plot]'")


def _fail(message: str) -> typer.Exit:
    """Say what is wrong in one line, and end with code 2."""
    typer.secho(f"csgmcmc: {message}", err=True, fg="red")
    return typer.Exit(2)
