"""`csgmcmc reproduce`: the experiments of the paper."""

import os
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from csgmcmc.chain import leave
from csgmcmc.cli.messages import fail, missing
from csgmcmc.experiments import Experiment, find_experiments
from csgmcmc.experiments import reproduce as run_experiment
from csgmcmc.experiments.changes import change
from csgmcmc.recipe import read_values


def reproduce(
    name: Annotated[str | None, typer.Argument(help="The experiment; --list names them.")] = None,
    preset: Annotated[str, typer.Option(help="Its settings: paper, laptop, smoke.")] = "laptop",
    seeds: Annotated[int | None, typer.Option(help="In place of the preset's.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs/reproduce"),
    workers: Annotated[
        int | None, typer.Option(help="Processes, of one thread each; all cores by default.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A JSON file, such as a recipe, that changes settings.")
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
        raise missing(error) from error
    experiments = find_experiments()
    if show:
        rows = [(each.name, each.summary, list(each.presets)) for each in experiments.values()]
        Console().print(screen.catalogue(rows))
        return
    if name not in experiments:
        problem = f"there is no experiment {name!r}." if name else "which experiment?"
        raise fail(f"{problem} Choose one of {', '.join(experiments)}")
    if data is not None and not data.is_dir():
        raise fail(f"there is no folder {data}, which --data names")
    if config is not None and not config.is_file():
        raise fail(f"there is no file {config}, which --config names")
    torch.set_num_threads(1)  # the tensors are tiny: a second thread only costs
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    speaks = os.environ.get("RANK", "0") == "0"  # one of the processes that torchrun starts
    if workers is None:
        # Jobs are alike and need little memory: a core each is the fastest.
        workers = (os.cpu_count() or 1) if alone else 1
    try:
        if config is not None and speaks:
            _say_what_does_not_fit(experiments[name], preset, config)
        with screen.JobsBar(name, Console(stderr=True, quiet=not speaks)) as bar:
            results = run_experiment(
                experiments[name],
                preset,
                out,
                seeds=seeds,
                data=data,
                workers=workers,
                changes=config,
                on_start=bar.on_start,
                on_job=bar.on_job,
            )
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
    except BrokenExecutor as error:
        raise fail("a worker died, perhaps for want of memory: try fewer --workers") from error
    except KeyboardInterrupt:
        typer.echo("csgmcmc: stopped; the same command goes on where it was", err=True)
        raise typer.Exit(130) from None
    leave()
    if not speaks:
        return
    Console().print(screen.overview(make_page(vars(results))))
    typer.echo(f"results: {out / f'{name}.json'}; csgmcmc report {out} makes a page of them")


def _say_what_does_not_fit(experiment: Experiment, preset: str, config: Path) -> None:
    if preset not in experiment.presets:
        return  # which is said elsewhere
    values = read_values(config)
    _, unused = change(experiment.presets[preset], values)
    if 0 < len(unused) < len(values):
        typer.echo(
            f"csgmcmc: {experiment.name} has no settings for {', '.join(unused)} of {config}",
            err=True,
        )
