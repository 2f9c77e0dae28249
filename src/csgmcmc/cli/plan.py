"""`csgmcmc plan`: what a run will cost, before it begins."""

import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Table

from csgmcmc.arguments import check_choice, check_count, check_number, counted
from csgmcmc.cli.messages import fail, is_own
from csgmcmc.errors import DivergedError, StoreError
from csgmcmc.files import readable_size
from csgmcmc.planning import advise, best_interval, cost_of, make_layout, useful_share
from csgmcmc.planning.advice import largest, readable_time
from csgmcmc.planning.costs import MOST, Costs, Layout, Machine, Sizes, Step, Work
from csgmcmc.planning.measure import existing_folder, measure_task, measure_wire, states_of
from csgmcmc.recipe import Recipe
from csgmcmc.task import Task, load_function, make_task

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
RECIPE = ("sampler", "epochs", "cycles", "exploration", "draws_per_cycle")
MEASURED = ("draw_seconds", "checkpoint_seconds", "predict_seconds", "disk_bandwidth", "bandwidth")
LEAST = 1e-30  # of seconds, bytes and rates, so that no product of them is infinite
WHAT_IF = "Without a script: "
Number = float | None
Count = int | None


def plan(
    script: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:FUNCTION]", help="What csgmcmc run takes; see --parameters."
        ),
    ] = None,
    processes: Annotated[
        Count, typer.Option(help="In all; chains x replicas if those are given, else 1.")
    ] = None,
    chains: Annotated[Count, typer.Option(help="Number of chains.")] = None,
    replicas: Annotated[Count, typer.Option(help="Processes of each chain.")] = None,
    shards: Annotated[bool, typer.Option("--shards", help="Replicas share the weights.")] = False,
    split_batch: Annotated[
        bool, typer.Option("--split-batch", help="Replicas share a batch; else each has its own.")
    ] = False,
    config: Annotated[Path | None, typer.Option(help="A recipe as a JSON file.")] = None,
    sampler: Annotated[str | None, typer.Option(help="SGHMC, SGLD, ...")] = None,
    epochs: Annotated[Number, typer.Option(help="Passes over the data.")] = None,
    cycles: Annotated[Count, typer.Option(help="Number of cycles.")] = None,
    exploration: Annotated[Number, typer.Option(help="Share of a cycle.")] = None,
    draws_per_cycle: Annotated[Count, typer.Option(help="Draws kept in each cycle.")] = None,
    steps: Annotated[Count, typer.Option(help="Steps of a chain on one process.")] = None,
    draws: Annotated[Count, typer.Option(help="Draws of all chains together.")] = None,
    checkpoint_every: Annotated[Count, typer.Option(help="Steps between checkpoints.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Of stored draws: bfloat16, ...")] = None,
    only: Annotated[str | None, typer.Option(help="trainable: store no other weights.")] = None,
    out: Annotated[Path, typer.Option(help="Folder whose disk is measured.")] = Path("runs"),
    parameters: Annotated[Number, typer.Option(help=WHAT_IF + "weights of the model.")] = None,
    trained: Annotated[
        Number, typer.Option(help=WHAT_IF + "sampled weights; draws hold no others.")
    ] = None,
    layers: Annotated[int, typer.Option(help=WHAT_IF + "layers of equal size.")] = 32,
    weight_bytes: Annotated[float, typer.Option(help=WHAT_IF + "bytes per weight.")] = 4,
    step_seconds: Annotated[Number, typer.Option(help="Forward, backward and update.")] = None,
    noise_seconds: Annotated[Number, typer.Option(help="What noise adds to a step.")] = None,
    draw_seconds: Annotated[Number, typer.Option(help="To write a draw.")] = None,
    checkpoint_seconds: Annotated[Number, typer.Option(help="To write a checkpoint.")] = None,
    predict_seconds: Annotated[Number, typer.Option(help="A batch with one draw.")] = None,
    disk_bandwidth: Annotated[Number, typer.Option(help="Bytes a second.")] = None,
    bandwidth: Annotated[
        Number, typer.Option(help="Bytes a second between processes, which are then not tried.")
    ] = None,
    cores: Annotated[Count, typer.Option(help="For all processes.")] = None,
    memory: Annotated[Number, typer.Option(help="Bytes that a process may use.")] = None,
    disk: Annotated[Number, typer.Option(help="Bytes that are free.")] = None,
    failures_per_hour: Annotated[Number, typer.Option(help="Of all processes.")] = None,
    restart_seconds: Annotated[float, typer.Option(help="From a failure to the next step.")] = 60,
) -> None:
    """Say what a run will cost: time, memory, disk and bytes on the wire; and what to change.

    Takes the script of csgmcmc run, and measures for half a minute on this machine. Numbers that
    are given replace measured ones. With --parameters it needs no script.
    """
    asked = SimpleNamespace(**locals())  # for functions that each take some of the options
    try:
        planned = _find(asked)
        costs = cost_of(*planned[:4], sharded=shards)
        sizes, machine, layout, work, limits = planned
        limits = {**limits, "cores": machine.cores}
        lines = advise(costs, sizes, layout, work, sharded=shards, **limits)
        if failures_per_hour is not None:
            lines.append(_checkpoint_rule(costs, planned, asked))
    except (DivergedError, StoreError) as error:
        raise fail(str(error)) from error
    except ValueError as error:
        if not is_own(error):
            raise  # an error of the script: the traceback says where
        raise fail(str(error)) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, 100)
    console.print(_table(costs, planned))
    for line in lines:
        console.print(f"- {line}", markup=False)


class _Planned(NamedTuple):
    """What the costs are computed from."""

    sizes: Sizes
    machine: Machine
    layout: Layout
    work: Work
    limits: dict[str, float]


def _find(asked: SimpleNamespace) -> _Planned:
    """Check what was asked for, and measure what was not given."""
    layout = make_layout(asked.processes, asked.chains, asked.replicas)
    if asked.shards and layout.replicas == 1:
        raise ValueError("shards are divided among the replicas of a chain: give --replicas")
    if asked.only is not None:
        check_choice("only", asked.only, ("trainable",))
    if asked.dtype is not None:
        asked.dtype = DTYPES[check_choice("dtype", asked.dtype, tuple(DTYPES))]
    for name, least in {"steps": 1, "cores": 1, "checkpoint_every": 1, "draws": 0}.items():
        if getattr(asked, name) is not None:
            check_count(name, getattr(asked, name), at_least=least, below=MOST)
    names = ("step_seconds", "memory", "disk", "failures_per_hour", *MEASURED)
    given = {
        name: check_number(name, value, at_least=LEAST, at_most=1 / LEAST)
        for name in names
        if (value := getattr(asked, name)) is not None
    }
    check_number("restart_seconds", asked.restart_seconds, at_least=0)
    if (noise := asked.noise_seconds) is not None:
        check_number("noise_seconds", noise, at_least=0, at_most=1 / LEAST)
    if (asked.script is None) == (asked.parameters is None):
        both = "" if asked.script is None else ", not both"
        raise ValueError(f"give MODULE:FUNCTION, or --parameters, --step-seconds and --steps{both}")
    limits = {name: given[name] for name in ("memory", "disk") if name in given}
    if asked.script is None:
        sizes, machine, work = _assume(asked)
    else:
        sizes, machine, work = _measure(asked, layout, given)
        limits = {"disk": shutil.disk_usage(existing_folder(asked.out)).free, **limits}
    known = {name: given[name] for name in MEASURED if name in given}
    machine = replace(machine, cores=asked.cores or machine.cores, **known)
    if "step_seconds" in given:
        alone = Step(given["step_seconds"], noise=machine.alone.noise)
        machine = replace(machine, alone=alone, shared=None)
    if noise is not None:
        shared = machine.shared and replace(machine.shared, noise=noise)
        machine = replace(machine, alone=replace(machine.alone, noise=noise), shared=shared)
    work = replace(work, batch_share=1 / layout.replicas if asked.split_batch else 1.0)
    if asked.draws is not None:
        work = replace(work, draws=-(-asked.draws // layout.chains))
    if asked.steps is not None:
        parts = 1 if asked.split_batch else layout.replicas
        work = replace(work, steps=-(-asked.steps // parts))
    if asked.checkpoint_every is not None:
        work = replace(work, checkpoint_every=asked.checkpoint_every)
    return _Planned(sizes, machine, layout, work, limits)


def _recipe(own: Recipe, asked: SimpleNamespace) -> Recipe:
    if asked.config is not None:
        own = Recipe.load(asked.config, own)
    given = {name: getattr(asked, name) for name in RECIPE}
    return own.replace(**{name: value for name, value in given.items() if value is not None})


def _measure(
    asked: SimpleNamespace, layout: Layout, given: dict[str, float]
) -> tuple[Sizes, Machine, Work]:
    """What the task of the script takes on this machine."""
    task: Task = make_task(load_function(asked.script), Recipe.seed or 0)
    recipe = _recipe(task.recipe, asked)
    schedule = recipe.make_schedule(
        task.steps_per_epoch(1 if asked.split_batch else layout.replicas)
    )
    sizes, machine = measure_task(
        task,
        recipe,
        asked.out,
        one_thread=layout.processes > 1,
        only_trained=True if asked.only else None,
        dtype=asked.dtype,
    )
    if layout.processes > 1 and "bandwidth" not in given:
        weights = sum(param.numel() for param in task.model.parameters())
        wire = measure_wire(min(layout.processes, max(2, machine.cores or 2), 4), weights)
        machine = replace(machine, **wire)
    noisy = 1 - recipe.exploration if recipe.temperature > 0 else 0.0
    every = task.chain_options.get("checkpoint_every")
    return sizes, machine, Work(schedule.steps, schedule.total_draws, noisy, every)


def _assume(asked: SimpleNamespace) -> tuple[Sizes, Machine, Work]:
    """What the options say, without a script."""
    if asked.step_seconds is None or asked.steps is None:
        raise ValueError("without a script, give --step-seconds and --steps")
    recipe = _recipe(Recipe(), asked)
    count = check_number("parameters", asked.parameters, at_least=1)
    sampled = count if asked.trained is None else asked.trained
    sampled = check_number("trained", sampled, at_least=1, at_most=count)
    each = check_number("weight_bytes", asked.weight_bytes, at_least=1, at_most=8)
    check_count("layers", asked.layers, at_least=1, below=MOST)
    stored = each if asked.dtype is None else asked.dtype.itemsize
    kept = sampled  # as a run does where some weights are frozen
    sizes = Sizes(
        weights=count * each,
        trained=sampled * each,
        states=states_of(recipe),
        layer=count * each / asked.layers,
        draw=kept * stored,
        shared=(count - kept) * each,
        weight_bytes=each,
    )
    disk, draws = asked.disk_bandwidth or 1e9, recipe.cycles * recipe.draws_per_cycle
    machine = Machine(
        Step(asked.step_seconds),
        draw_seconds=(sizes.draw + sizes.shared) / disk,  # what is shared is compared each time
        checkpoint_seconds=sizes.checkpoint / disk,
        predict_seconds=math.nan,
        disk_bandwidth=disk,
        bandwidth=1e10,
    )
    return sizes, machine, Work(1, draws, 1 - recipe.exploration)


def _table(costs: Costs, planned: _Planned) -> Table:
    sizes, machine, layout, work, _ = planned
    table = Table("", "", "most of it", box=None, pad_edge=False)

    def add(what: str, total: str, parts: dict[str, float] | None = None) -> None:
        name, share = largest(parts) if parts else ("", 0.0)
        table.add_row(what, total, f"{name}, {share:.0%}" if share else "")

    of = f"{counted(layout.chains, 'chain')} of {counted(work.steps, 'step')}"
    on = f"{layout.processes:,} process{'' if layout.processes == 1 else 'es'}"
    draws = layout.chains * work.draws
    add(f"time: {of} on {on}", readable_time(sum(costs.seconds.values())), costs.seconds)
    add("  a step", readable_time(costs.step_seconds))
    add(f"  a draw of {readable_size(sizes.draw)}", readable_time(machine.draw_seconds))
    every = counted(work.every, "step")
    words = f"  a checkpoint of {readable_size(sizes.checkpoint)}, every {every}"
    add(words, readable_time(machine.checkpoint_seconds))
    add("memory of a process", readable_size(sum(costs.memory.values())), costs.memory)
    add("  to resume", readable_size(costs.resume_memory))
    total = readable_size(sum(costs.disk.values()))
    add(f"disk: {counted(draws, 'draw')}", total, costs.disk)
    add("wire: a process in a step", readable_size(costs.wire))
    add("  all processes in all steps", readable_size(costs.wire_total))
    if not math.isnan(costs.predict_seconds):
        add("prediction of a batch with all draws", readable_time(costs.predict_seconds))
    return table


def _checkpoint_rule(costs: Costs, planned: _Planned, asked: SimpleNamespace) -> str:
    """How often to save, where processes are lost."""
    between, saved = 3600 / asked.failures_per_hour, planned.machine.checkpoint_seconds
    best = best_interval(saved, between)
    every = max(1, min(planned.work.steps, round(best / max(costs.step_seconds, 1e-12))))
    now = planned.work.every * costs.step_seconds
    shares = [
        useful_share(max(t, 1e-9), saved, asked.restart_seconds, between) for t in (best, now)
    ]
    return (
        f"failures, {asked.failures_per_hour:g} an hour: checkpoint_every={every} (every "
        f"{readable_time(best)}) leaves {shares[0]:.1%} of the time for work that is not lost; "
        f"every {planned.work.every:,} steps leave {shares[1]:.1%}"
    )
