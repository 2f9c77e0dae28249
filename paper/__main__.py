"""`python -m paper`: list the experiments, run one, or make a page of results."""

import os
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from csgmcmc import shutdown_distributed
from paper.experiments import Experiment, find_experiments, reproduce
from paper.experiments.changes import change, read_values
from paper.report.progress import JobsBar

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)


@app.command("list")
def list_experiments() -> None:
    """Name the experiments, what they show, and their presets."""
    table = Table("name", "what it shows", "presets")
    for each in find_experiments().values():
        table.add_row(Text(each.name), Text(each.summary), Text(", ".join(each.presets)))
    Console().print(table)


@app.command()
def report(folder: Annotated[Path, typer.Argument(help="Folder of results.")]) -> None:
    """Write the results up: FOLDER/README.md, a page for each experiment, and index.html."""
    if not folder.is_dir():
        raise fail(f"there is no folder {folder}")
    try:
        from paper.report.write import write_report  # noqa: PLC0415  (needs matplotlib, an extra)

        written = write_report(folder)
    except ModuleNotFoundError as error:
        raise missing(error) from error
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
    for path in written:
        typer.echo(path)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="The experiment; python -m paper list names them.")],
    preset: Annotated[str, typer.Option(help="Its settings: paper, laptop, smoke.")] = "laptop",
    seeds: Annotated[int | None, typer.Option(help="In place of the preset's.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs/reproduce"),
    workers: Annotated[
        int | None, typer.Option(help="Processes, of one thread each; all cores by default.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to run, e.g. cuda.")] = None,
    config: Annotated[Path | None, typer.Option(help="A JSON file that changes settings.")] = None,
) -> None:
    """Reproduce an experiment of the paper: its tables, with the paper's numbers beside ours.

    Results go to OUT/NAME.json as they come; a run that was stopped continues where it was.
    """
    try:
        from paper.pages import make_page  # noqa: PLC0415  (needs matplotlib, an extra)
        from paper.report.console import overview  # noqa: PLC0415  (the same)
    except ModuleNotFoundError as error:
        raise missing(error) from error
    experiments = find_experiments()
    if name not in experiments:
        raise fail(f"there is no experiment {name!r}. Choose one of {', '.join(experiments)}")
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
        with JobsBar(name, Console(stderr=True, quiet=not speaks)) as bar:
            results = reproduce(
                experiments[name],
                preset,
                out,
                seeds=seeds,
                data=data,
                workers=workers,
                changes=config,
                device=device,
                on_start=bar.on_start,
                on_job=bar.on_job,
            )
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
    except BrokenExecutor as error:
        raise fail("a worker died, perhaps for want of memory: try fewer --workers") from error
    except KeyboardInterrupt:
        typer.echo("paper: stopped; the same command continues it", err=True)
        raise typer.Exit(130) from None
    shutdown_distributed()
    if not speaks:
        return
    Console().print(overview(make_page(vars(results))))
    typer.echo(f"results: {out / f'{name}.json'}; python -m paper report {out} writes them up")


def _say_what_does_not_fit(experiment: Experiment, preset: str, config: Path) -> None:
    if preset not in experiment.presets:
        return  # which is said elsewhere
    values = read_values(config)
    _, unused = change(experiment.presets[preset], values)
    if 0 < len(unused) < len(values):
        typer.echo(
            f"paper: {experiment.name} has no settings for {', '.join(unused)} of {config}",
            err=True,
        )


def missing(error: ModuleNotFoundError) -> typer.Exit:
    """Say what to install for a package that is not there, and exit with code 2."""
    package = (error.name or "a package").partition(".")[0]
    return fail(f"{package} is missing: pip install 'csgmcmc[plot]'")


def fail(message: str) -> typer.Exit:
    """Print what is wrong in one line, and exit with code 2."""
    typer.secho(f"paper: {' '.join(message.splitlines())}", err=True, fg="red")
    return typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m paper")
