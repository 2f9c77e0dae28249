"""The command line."""

import warnings
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import csgmcmc
from csgmcmc.draws import DrawStore, StoreError, StoreWarning
from csgmcmc.experiments import demo as demo_run
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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(help="Iterations of each chain.")] = 50_000,
    chains: Annotated[int, typer.Option(help="Chains, run side by side.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of starts and noise.")] = 0,
) -> None:
    """SGLD against cSGLD on the paper's 25 Gaussians: a table and a picture."""
    console = Console()
    try:
        from csgmcmc.report import demo as demo_report  # noqa: PLC0415  (matplotlib is an extra)
    except ModuleNotFoundError as error:
        raise _fail(f"{error.name} is missing: pip install 'csgmcmc[plot]'") from error
    try:
        config = demo_run.DemoConfig(steps=steps, chains=chains, seed=seed)
        methods = config.methods
        out.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        raise _fail(str(error)) from error
    torch.set_num_threads(1)  # the tensors are tiny: a second thread only costs

    draws = {}
    columns = [TextColumn("{task.description:6}"), BarColumn(), "{task.completed}/{task.total}"]
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        tasks = {method.name: progress.add_task(method.name, total=steps) for method in methods}
        for method in methods:
            draws[method.name] = demo_run.sample(
                config,
                method,
                lambda done, task=tasks[method.name]: progress.update(task, completed=done),
            )

    rows = [
        row for method in methods for row in demo_run.scores(config, method, draws[method.name])
    ]
    console.print(demo_report.table(rows))
    pooled = {name: points.reshape(-1, 2) for name, points in draws.items()}
    exact = demo_run.exact_draws(config, count=len(pooled["cSGLD"]))
    titles = {name: f"{name}, {chains} chains" for name in pooled}
    figure = demo_report.picture(
        {"target": exact} | {titles[name]: points for name, points in pooled.items()},
        {method.name: (method.lr, method.schedule.table()) for method in methods},
        steps_shown=max(steps // 5, 1),
    )
    path = out / "mixture.png"
    demo_report.save(figure, path)
    console.print(f"picture: {path}")


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
