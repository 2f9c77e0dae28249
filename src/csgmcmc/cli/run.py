"""`csgmcmc run`: sample the model of a user's own script."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from csgmcmc.cli.messages import Script, fail, is_own, warnings_in_one_line
from csgmcmc.cli.sampling import (
    Sampled,
    check,
    check_jobs,
    count_chains,
    sample,
    sample_side_by_side,
    seed_of,
)
from csgmcmc.distributed import shutdown_distributed
from csgmcmc.draws import DrawStore
from csgmcmc.errors import (
    DivergedError,
    LockedError,
    ProcessError,
    SettingsMismatchError,
    StoreError,
)
from csgmcmc.files import atomic_write, make_folder, readable_io_errors
from csgmcmc.posterior import Posterior
from csgmcmc.processes import cores
from csgmcmc.randomness import generators_of, reseed, seeded
from csgmcmc.recipe import SEEDS, Recipe, read_values
from csgmcmc.report.run import NAME, PAGE_NUMBERS, Record, check_complete, overview, read_record
from csgmcmc.task import MakeTask, Task, load_function, make_task

RECIPE = "recipe.json"


def run(
    script: Script,
    out: Annotated[Path | None, typer.Option(help="Folder of the draws; runs/MODULE.")] = None,
    config: Annotated[Path | None, typer.Option(help="A recipe as a JSON file.")] = None,
    chains: Annotated[
        int | None,
        typer.Option(help="Number of chains: in sequence, or divided among processes."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Processes of this machine that run the chains side by side.")
    ] = 1,
    sampler: Annotated[str | None, typer.Option(help="SGHMC, SGLD, ...")] = None,
    lr: Annotated[float | None, typer.Option(help="Step size at the start of a cycle.")] = None,
    temperature: Annotated[float | None, typer.Option(help="1 is the posterior.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Gaussian prior.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Passes over the data.")] = None,
    cycles: Annotated[int | None, typer.Option(help="Number of cycles.")] = None,
    exploration: Annotated[float | None, typer.Option(help="Exploring share of a cycle.")] = None,
    draws_per_cycle: Annotated[int | None, typer.Option(help="Draws kept in each cycle.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of initial weights, batches and noise.")] = None,
    resume: Annotated[bool, typer.Option(help="Resume a run that was stopped.")] = True,
    report: Annotated[
        bool | None, typer.Option(help="Score the draws at the end, or again if the run is done.")
    ] = None,
) -> None:
    """Sample the model of your own script: store draws on disk, resume, and report scores.

    Options override the recipe of --config, which overrides the script's own. The same command
    resumes a run that was stopped.
    """
    values = {
        "sampler": sampler,
        "lr": lr,
        "temperature": temperature,
        "weight_decay": weight_decay,
        "epochs": epochs,
        "cycles": cycles,
        "exploration": exploration,
        "draws_per_cycle": draws_per_cycle,
        "seed": seed,
    }
    given = {name: value for name, value in values.items() if value is not None}
    name = _name_of(script)
    out = Path("runs") / name.partition(":")[0] if out is None else out
    is_main = os.environ.get("RANK", "0") == "0"  # the one process of torchrun that prints
    with _told_in_one_line(out, is_main):
        _check_paths(config, out)
        make = load_function(script)
        task, recipe = _settle(make, config, given)
        record = _record_of(name, out)
        total, jobs = count_chains(chains), check_jobs(jobs)
        check(task, recipe, total)
        if is_main:
            _keep_recipe(recipe, out, resume=resume)
        if record["chains"] >= total and not report:
            if is_main:
                check_complete(record, out)
                typer.echo(f"{out} is finished already; another --out starts a new run", err=True)
        else:
            parts = (make, task, recipe, out, total)
            with warnings_in_one_line(), _timed(record, out, writes=is_main):
                if min(jobs, total) > 1:
                    done = sample_side_by_side(script, *parts, jobs, resume=resume)
                else:
                    done = sample(*parts, resume=resume, on_ready=lambda: _hint(total))
            shutdown_distributed()
            if is_main:
                record |= _judge(done, out, wanted=report is not False)
                record["chains"] = max(total, record["chains"])
                _write(out / NAME, record)
    if is_main:
        Console().print(overview(record, out), soft_wrap=True)
        typer.echo(f"csgmcmc inspect {out} shows the draws, csgmcmc report {out} makes a page")


@contextmanager
def _told_in_one_line(out: Path, is_main: bool) -> Iterator[None]:
    """Turn errors that are not the script's own into one line and an exit code."""
    try:
        yield
    except KeyboardInterrupt as error:
        if is_main:
            notes = getattr(error, "__notes__", ["stopped; the same command resumes the run"])
            typer.echo(f"csgmcmc: {notes[0]}", err=True)
        raise typer.Exit(130) from None
    except SettingsMismatchError as error:
        raise fail(f"{error}: use another --out, or delete {out}") from error
    except (DivergedError, StoreError, LockedError) as error:
        raise fail(str(error)) from error
    except ProcessError as error:
        raise fail(f"{error}; the same command goes on") from error
    except ValueError as error:
        if not is_own(error):
            raise  # an error of the script: the traceback says where
        raise fail(str(error)) from error
    except OSError as error:
        if not str(error.filename).startswith(str(out)):
            raise  # not about the folder of the run: an error of the script
        raise fail(str(error)) from error


def _hint(chains: int) -> None:
    """Say that chains could run side by side, if so."""
    jobs = min(chains, cores())
    if jobs > 1 and "WORLD_SIZE" not in os.environ:
        typer.echo(f"{chains} chains in sequence; --jobs {jobs} runs {jobs} side by side")


def _check_paths(config: Path | None, out: Path) -> None:
    try:
        if config is not None and not config.is_file():
            raise ValueError(f"there is no file {config}, which --config names")
        if out.is_file():
            raise ValueError(f"{out}, which --out names, is a file: give a folder")
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise ValueError(str(error)) from error


def _name_of(script: str) -> str:
    """MODULE:FUNCTION without folders and packages."""
    module, _, function = script.rpartition(":")
    module = Path(module).stem if module.endswith(".py") else module.rpartition(".")[2]
    return f"{module}:{function}"


def _settle(make: MakeTask, config: Path | None, given: dict[str, Any]) -> tuple[Task, Recipe]:
    """The task and its recipe: options override the file, which overrides the script's own."""
    values = {**(read_values(config) if config else {}), **given}
    seed = values.get("seed", Recipe.seed)
    # The recipe refuses any other, and says where it is from.
    task = make_task(make, seed if isinstance(seed, int) and 0 <= seed < SEEDS else 0)
    recipe = Recipe.load(config, task.recipe) if config else task.recipe
    recipe = recipe.replace(**given)
    if seed_of(recipe) != seed:  # the script sets it
        task = make_task(make, seed_of(recipe))
    with seeded(seed_of(recipe)):  # a resumed run, and all processes, find the same lr
        parts = (task.model, task.loss, task.data)
        recipe = recipe.with_lr(*parts, num_data=task.size, **task.chain_options)
    return task, recipe


def _record_of(name: str, out: Path) -> dict[str, Any]:
    """The record of the run in `out`; `chains` counts the finished ones."""
    record = {"run": name, "chains": 0, "seconds": 0.0, **read_record(out)}
    if record["run"] != name:
        raise ValueError(f"{out} holds a run of {record['run']}: use another --out")
    return record


def _keep_recipe(recipe: Recipe, out: Path, *, resume: bool) -> None:
    """Write the recipe into the folder of the run, or check that it has not changed."""
    path, now = out / RECIPE, json.loads(recipe.to_json())
    if not path.exists():
        if (out / "store.json").exists():
            raise ValueError(f"{out} holds draws that are not from csgmcmc run: use another --out")
        with readable_io_errors(out, "writing the recipe"):
            make_folder(out)
            atomic_write(path, recipe.save)
        return
    before = read_values(path)
    others = [
        f"{name} was {before.get(name)} and is {now.get(name)} now"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]
    if others:
        raise ValueError(
            f"{out} holds a run with other settings ({', '.join(others)}): use another --out, or "
            f"resume that run with --config {path}"
        )
    if not resume:
        raise ValueError(f"{out} holds a run already: use another --out, or leave out --no-resume")


@contextmanager
def _timed(record: dict[str, Any], out: Path, *, writes: bool) -> Iterator[None]:
    """Add the seconds of the block to the record.

    The record is written before the block too, so that a killed run has the name of its script.
    """
    began = time.monotonic()
    try:
        if writes:
            _write(out / NAME, record)
        yield
    finally:
        record["seconds"] += time.monotonic() - began
        if writes:
            _write(out / NAME, record)


def _write(path: Path, record: Record) -> None:
    with readable_io_errors(path.parent, f"writing {path.name}"):
        text = json.dumps(record, indent=1) + "\n"
        atomic_write(path, lambda temporary: temporary.write_text(text))


def _judge(done: Sampled, out: Path, *, wanted: bool) -> dict[str, Any]:
    """Counts, and scores if there are validation data."""
    from csgmcmc.cli.scores import judge  # noqa: PLC0415  (slow to import, and not for --help)

    draws, task = DrawStore(out), done.task
    (out / PAGE_NUMBERS).unlink(missing_ok=True)  # of fewer chains
    cycles = {(draw.chain_id, draw.cycle) for draw in draws}
    found: dict[str, Any] = {"draws": len(draws), "cycles": len(cycles)}
    found |= {"average": None, "draw": None, "check": None}
    if not wanted:
        return {**found, "why": "--no-report was given"}
    if task.validation is None:
        return {**found, "why": "the script returns no validation data, the fourth of its tuple"}
    try:
        posterior = Posterior(task.model, draws, likelihood=task.likelihood)
        for generator in generators_of(task.data):  # the same batches each time it is judged
            reseed(generator, 0)
        with seeded(0):
            scores, findings = judge(posterior, done)
    except ValueError as error:
        if not is_own(error):
            raise
        return {**found, "why": str(error)}  # the draws are safe: they can be scored later
    with readable_io_errors(out, f"writing {PAGE_NUMBERS}"):
        atomic_write(out / PAGE_NUMBERS, findings.save)
    return {**found, "why": None, **scores}
