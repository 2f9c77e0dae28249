"""What `csgmcmc plan` predicts beside what runs really cost: time, memory, disk, bytes on the wire.

    python benchmarks/planning.py [--sizes 1e4 1e5] [--out benchmarks/results/planning.json]

Rows of other sizes than those that are asked for stay as they are in the file.

Every prediction and every run has a process of its own; they are made in turn, ROUNDS times, and
medians are compared: the speed of a shared machine changes within minutes. A prediction knows only
what `plan` measures: a few steps, a draw and a checkpoint in one process, and sums over two. So two
and four processes are predicted from one. "By size" is predicted from files of 64 MB, and "formula"
is the memory beyond that of the smallest model, from the number of weights alone.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import DrawStore, Recipe, Task, init_distributed, shutdown_distributed
from csgmcmc.chain import loop
from csgmcmc.cli.sampling import divided
from csgmcmc.planning import (
    Work,
    cost_of,
    make_layout,
    measure_disk,
    measure_task,
    measure_wire,
)
from csgmcmc.planning.measure import peak_memory

BATCH, CYCLES, ROUNDS = 64, 2, 3
SIZES = [10**power for power in range(4, 9)]
STEPS = {10**4: 4000, 10**5: 2000, 10**6: 400, 10**7: 96, 10**8: 32}
EVERY = {10**7: 8, 10**8: 8}  # steps between checkpoints, where a hundredth of the run is one step
SHARED = 10**6  # weights of the model that several processes share
LAYOUTS = [(1, 2), (1, 4), (2, 1), (4, 1)]  # chains, replicas
Row = dict[str, Any]


def task_of(weights: int) -> Task:
    width = round((weights / 2) ** 0.5)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()),
        nn.Linear(width, 10),
    )
    data = TensorDataset(torch.randn(8 * BATCH, width), torch.randint(10, (8 * BATCH,)))
    loader = DataLoader(data, BATCH, shuffle=True)
    return Task(model, nn.functional.cross_entropy, loader, recipe=recipe_of(weights))


def recipe_of(weights: int) -> Recipe:
    return Recipe(lr=1e-4, epochs=STEPS[weights] / 8, cycles=CYCLES, exploration=0.5)


# What is predicted


def predict(weights: int, folder: Path) -> Row:
    """All that `plan` measures; a row of sizes and one of times."""
    base = peak_memory(torch.device("cpu"))  # Python, torch and what the library imports
    task = task_of(weights)
    sizes, machine = measure_task(task, task.recipe, folder, one_thread=True, seconds=3)
    disk = measure_disk(folder)
    if weights == SHARED:
        machine = replace(machine, **measure_wire(2, weights))
    layouts = [(1, 1), *LAYOUTS] if weights == SHARED else [(1, 1)]
    found = {}
    for chains, replicas in layouts:
        schedule = task.recipe.make_schedule(task.steps_per_epoch(replicas))
        work = Work(
            *(schedule.steps, schedule.total_draws, 1 - task.recipe.exploration, EVERY.get(weights))
        )
        layout = make_layout(chains * replicas, chains)
        costs = cost_of(sizes, machine, layout, work)
        turns = costs.seconds["draws"] / (work.draws * machine.draw_seconds)  # of processes
        found[f"{chains}x{replicas}"] = {
            "step": costs.step_seconds + costs.seconds["logs"] / work.steps,
            "draw": turns * machine.draw_seconds,
            "checkpoint": costs.seconds["checkpoints"] / work.checkpoints,
            "draw, by size": turns * disk.seconds("draw", sizes.draw),
            "checkpoint, by size": turns * disk.seconds("checkpoint", sizes.checkpoint),
            "run": sum(costs.seconds.values()),
            "memory": sum(costs.memory.values()) - base,
            "formula": sum(costs.memory.values()) - sizes.rest,
            "disk": sum(costs.disk.values()),
            "wire": costs.wire_total,
        }
    return {"sizes": vars(sizes), "machine": repr(machine), "costs": found}


# What is measured


class Timed:
    """Calls of a method, and the seconds in them."""

    def __init__(self, owner: Any, name: str) -> None:
        self.seconds: list[float] = []
        method: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*args, **options)
            finally:
                self.seconds.append(time.perf_counter() - began)

        setattr(owner, name, timed)

    def typical(self) -> float:
        """Without the first call, which does more: it makes folders, or reads what it wrote."""
        return statistics.median(self.seconds[1:])


def measure(weights: int, folder: Path, chains: int) -> Row:
    """A run, in one process or as one of several."""
    base = peak_memory(torch.device("cpu"))
    here = init_distributed(chains)
    task = task_of(weights)
    data = divided(task.data, here, 0)
    small = task_of(SIZES[0])  # loads what is loaded once
    small.recipe.replace(epochs=4).make_chain(
        small.model, small.loss, small.data, num_data=small.size, progress=False
    ).run()
    appended, saved = Timed(DrawStore, "append"), Timed(loop, "save_together")
    parts = (task.model, task.loss, data, DrawStore(folder / "run"))
    chain = task.recipe.make_chain(
        *parts,
        num_data=task.size,
        layout=here,
        progress=False,
        checkpoint_every=EVERY.get(weights),
    )
    wire, began = _loopback(), time.perf_counter()
    chain.run()
    seconds = time.perf_counter() - began
    writing = sum(appended.seconds) + sum(saved.seconds)
    row: Row = {
        "step": (seconds - writing) / chain.schedule.steps,
        "draw": appended.typical() if here.writes else 0.0,
        "checkpoint": saved.typical() if here.writes else 0.0,
        "run": seconds,
        "memory": peak_memory(torch.device("cpu")) - base,
        "wire": _loopback() - wire,
    }
    row |= {f"{name}, by size": row[name] for name in ("draw", "checkpoint")}
    row["disk"] = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file())
    shutdown_distributed()
    return row


def _loopback() -> int:
    """Bytes that processes of this machine have sent each other."""
    line = next(
        line
        for line in Path("/proc/net/dev").read_text().splitlines()
        if line.strip().startswith("lo:")
    )
    return int(line.split()[9])


# Both, each in processes of its own


def started(kind: str, weights: int, folder: Path, chains: int = 1, processes: int = 1) -> Row:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    if processes > 1:
        shared["OMP_NUM_THREADS"] = "1"  # as torchrun does
    command = [sys.executable, __file__, "--kind", kind, "--weights", str(weights)]
    command += ["--folder", str(folder), "--chains", str(chains)]
    running = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    said = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running)
    rows = [json.loads(each.splitlines()[-1]) for each in said]
    return rows[0] | {"memory": max(row.get("memory", 0) for row in rows)}


def compare(weights: int, folder: Path) -> list[Row]:
    """A row for each layout: what was predicted and what was measured, medians over the rounds."""
    predicted, measured = defaultdict(list), defaultdict(list)
    for _ in range(ROUNDS):
        for name, costs in started("predict", weights, folder)["costs"].items():
            chains, replicas = map(int, name.split("x"))
            predicted[chains, replicas].append(costs)
            found = started("measure", weights, folder, chains, chains * replicas)
            measured[chains, replicas].append(found)
            shutil.rmtree(folder / "run")
            runs = f"{costs['run']:.2f} s predicted, {found['run']:.2f} s measured"
            print(f"{weights:.0e} {name}: {runs}", flush=True)
    return [
        {
            "weights": weights,
            "chains": chains,
            "replicas": replicas,
            "predicted": medians(predicted[chains, replicas]),
            "measured": medians(measured[chains, replicas]),
        }
        for chains, replicas in predicted
    ]


def medians(rows: list[Row]) -> Row:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/planning.json"))
    for name, kind in (("--kind", str), ("--weights", int), ("--chains", int), ("--folder", Path)):
        parser.add_argument(name, type=kind)
    asked = parser.parse_args()
    if asked.kind is not None:
        work = predict if asked.kind == "predict" else measure
        options = [] if asked.kind == "predict" else [asked.chains]
        print(json.dumps(work(asked.weights, asked.folder, *options)))
        return
    folder = Path(tempfile.mkdtemp(dir="."))
    rows: list[Row] = json.loads(asked.out.read_text()) if asked.out.exists() else []
    try:
        for weights in map(int, asked.sizes):
            rows = [row for row in rows if row["weights"] != weights] + compare(weights, folder)
    finally:
        shutil.rmtree(folder)
    rows.sort(key=lambda row: row["weights"])
    # The memory beyond that of the smallest model.
    rest = rows[0]["measured"]["memory"] - rows[0]["predicted"]["formula"]
    for row in rows:
        row["measured"]["formula"] = row["measured"]["memory"] - rest
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(markdown(rows))


def markdown(rows: list[Row]) -> str:
    """Predicted / measured, for each run."""
    names = (
        *("step", "draw", "draw, by size", "checkpoint", "checkpoint, by size", "run"),
        *("memory", "formula", "disk", "wire"),
    )
    lines = [
        "| weights | chains x processes | " + " | ".join(names) + " |",
        "|---|---|" + "---|" * len(names),
    ]
    for row in rows:
        cells = [_cell(name, row["predicted"][name], row["measured"][name]) for name in names]
        where = f"{row['chains']} x {row['replicas']}"
        lines.append(f"| {row['weights']:.0e} | {where} | " + " | ".join(cells) + " |")
    return "\n".join(lines).replace("e+0", "e")


def _cell(name: str, predicted: float, measured: float) -> str:
    if not predicted or (name == "formula" and predicted < 100e6):
        return ""  # no more than what the memory of a process varies by
    ratio = f"{predicted / measured:.2f}"
    return ratio if 0.8 <= predicted / measured <= 1.25 else f"**{ratio}**"


if __name__ == "__main__":
    main()
