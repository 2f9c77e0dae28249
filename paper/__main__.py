"""`python -m paper`: list the experiments, run one, or make a page of results."""

import os
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from csgmcmc import shutdown_distributed
from paper.devices import on
from paper.experiments import Experiment, find_experiments, reproduce
from paper.experiments.changes import change, read_values
from paper.experiments.plan import Estimate, estimate
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
    """Write the results up: FOLDER/README.md, and a page for each experiment."""
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
    name: Annotated[str, typer.Argument(help="An experiment of python -m paper list, or all.")],
    preset: Annotated[str, typer.Option(help="Its settings: paper, laptop, smoke.")] = "laptop",
    seeds: Annotated[int | None, typer.Option(help="In place of the preset's.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs/reproduce"),
    workers: Annotated[
        int | None, typer.Option(help="Processes, of one thread each; all cores by default.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Where to run, e.g. cuda.")] = None,
    config: Annotated[Path | None, typer.Option(help="A JSON file that changes settings.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it takes, from a timed minute.")
    ] = False,
) -> None:
    """Reproduce an experiment of the paper: its tables, with the paper's numbers beside ours.

    NAME "all" is every experiment that has the preset, in the order of the report. Results go to
    OUT/NAME.json as they come; a run that was stopped continues where it was.
    """
    try:
        import matplotlib  # noqa: F401, PLC0415  (an extra)
    except ModuleNotFoundError as error:
        raise missing(error) from error
    names = names_of(name, preset)
    if data is not None and not data.is_dir():
        raise fail(f"there is no folder {data}, which --data names")
    if config is not None and not config.is_file():
        raise fail(f"there is no file {config}, which --config names")
    if name == "all" and device is None and torch.accelerator.is_available():
        device = str(torch.accelerator.current_accelerator())
    if dry_run:
        say_what_it_takes(names, preset, device)
        return
    if name == "all":
        check_all(names, preset, data)
    for each in names:
        run_one(each, preset, seeds, data, out, workers, device, config)


def names_of(name: str, preset: str) -> list[str]:
    """The experiments to run; for "all" those that have the preset, in the report's order."""
    experiments = find_experiments()
    if name == "all":
        from paper.report.chapter import ORDER  # noqa: PLC0415  (needs matplotlib, an extra)

        return [each for each in ORDER if preset in experiments[each].presets]
    if name not in experiments:
        raise fail(f"there is no experiment {name!r}. Choose one of all, {', '.join(experiments)}")
    return [name]


def check_all(names: Sequence[str], preset: str, data: Path | None) -> None:
    """Fail before the first experiment for what would stop a later one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise fail("all runs in one process: run imagenet by itself under torchrun")
    if preset != "paper":
        return
    experiments = find_experiments()
    for name in names:
        try:
            experiments[name].check_data(experiments[name].presets[preset], data)
        except (ValueError, OSError) as error:
            raise fail(f"{name}: {error}") from error


def say_what_it_takes(names: Sequence[str], preset: str, device: str | None) -> None:
    """Chains, epochs and hours of the experiments on networks, from timed steps."""
    experiments = find_experiments()
    try:
        with on(device):
            found = estimate({name: experiments[name] for name in names}, preset)
    except ValueError as error:
        raise fail(str(error)) from error
    table = Table("experiment", "chains", "epochs", "hours")
    sums = (sum(getattr(each, name) for each in found) for name in ("chains", "epochs", "hours"))
    for each in [*found, Estimate("all", *sums)]:
        table.add_row(each.name, str(each.chains), f"{each.epochs:g}", f"{each.hours:.1f}")
    Console().print(table)
    typer.echo("hours of training on one device; what is not named has no networks to train")


def run_one(
    name: str,
    preset: str,
    seeds: int | None,
    data: Path | None,
    out: Path,
    workers: int | None,
    device: str | None,
    config: Path | None,
) -> None:
    """Run one experiment, and print its page."""
    from paper.pages import make_page  # noqa: PLC0415  (needs matplotlib, an extra)
    from paper.report.console import overview  # noqa: PLC0415  (the same)

    experiments = find_experiments()
    torch.set_num_threads(1)  # the tensors are tiny: a second thread only costs
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    speaks = os.environ.get("RANK", "0") == "0"  # one of the processes that torchrun starts
    if workers is None:
        # Jobs are alike and need little memory: a core each is the fastest. A device has one job.
        workers = (os.cpu_count() or 1) if alone and device is None else 1
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
