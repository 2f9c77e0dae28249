"""Compare what `plan.py` predicts with what runs really cost: time, memory, disk, wire.

    python -m benchmarks.planning [--sizes 1e4 1e5] [--out benchmarks/results/planning.json]

Rows of sizes that are not asked for stay as they are in the file.

Every prediction and every run has a process of its own; they alternate, ROUNDS times, and medians
are compared: the speed of a shared machine changes within minutes. A prediction knows only what
`plan.py` measures: a few steps, a draw and a checkpoint in one process, and sums over two. So two
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
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from benchmarks.measure import Timed, measure_chain, measure_disk, peak_memory
from benchmarks.plan import Plan, cost_of
from benchmarks.wire import measure_wire
from csgmcmc.draws import Draws

BATCH, CYCLES, ROUNDS = 64, 2, 3
SIZES = [10**power for power in range(4, 9)]
STEPS = {10**4: 4000, 10**5: 2000, 10**6: 400, 10**7: 96, 10**8: 32}
EVERY = {10**7: 8, 10**8: 8}  # steps between checkpoints, where a hundredth of the run is one step
SHARED = 10**6  # weights of the model that several processes share
LAYOUTS = [(1, 2), (1, 4), (2, 1), (4, 1)]  # chains, replicas
Row = dict[str, Any]


def chain_of(
    weights: int, draws: Draws | None, layout: csgmcmc.ProcessLayout | None
) -> csgmcmc.Chain:
    """A chain of a network with about so many weights."""
    width, layout = round((weights / 2) ** 0.5), layout or csgmcmc.ProcessLayout()
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()),
        nn.Linear(width, 10),
    )
    data = TensorDataset(torch.randn(8 * BATCH, width), torch.randint(10, (8 * BATCH,)))
    order = layout.data_sampler(data) if layout.replicas > 1 else None
    loader = DataLoader(data, BATCH, shuffle=order is None, sampler=order)
    sampler = csgmcmc.SGHMC(
        model.parameters(), 1e-4, num_data=len(data), weight_decay=1e-4, chain_id=layout.chain_id
    )
    steps = STEPS[weights] // layout.replicas
    schedule = csgmcmc.Cyclical(steps, CYCLES, exploration=0.5, draws_per_cycle=3)
    parts = (model, nn.functional.cross_entropy, loader, sampler, schedule, draws)
    options: Any = {"layout": layout, "checkpoint_every": EVERY.get(weights), "progress": False}
    return csgmcmc.Chain(*parts, **options)


def predict(weights: int, folder: Path) -> Row:
    """Predictions for one process, and for several where the model is that of SHARED."""
    base = peak_memory()  # Python, torch and what the library imports
    store = csgmcmc.DrawStore(folder / "draws")
    alone = measure_chain(chain_of(weights, store, None), folder, seconds=3)
    shared = measure_chain(chain_of(weights, None, None), folder / "shared", threads=1, seconds=3)
    disk = measure_disk(folder / "disk")
    layouts, wire = [(1, 1)], {}
    if weights == SHARED:
        layouts, wire = [(1, 1), *LAYOUTS], measure_wire(2, weights)
    found = {}
    for chains, replicas in layouts:
        processes = chains * replicas
        measured = {**alone, **({} if processes == 1 else shared | wire)}
        measured["draws"] = chains * CYCLES * 3
        parts: Any = {"chains": chains, "replicas": replicas, "processes": processes}
        plan = Plan(**{**measured, **parts}).complete()
        costs = cost_of(plan)
        turns = costs.seconds["writing draws"] / (plan.own_draws * plan.draw_seconds)
        found[f"{chains}x{replicas}"] = {
            "step": costs.step_seconds,
            "draw": turns * plan.draw_seconds,
            "checkpoint": costs.seconds["writing checkpoints"] / plan.checkpoints,
            "draw, by size": turns * _by_size(disk["draw"], plan.draw_bytes),
            "checkpoint, by size": turns * _by_size(disk["checkpoint"], plan.saved),
            "run": sum(costs.seconds.values()),
            "memory": sum(costs.memory.values()) - base,
            "formula": sum(costs.memory.values()) - plan.rest,
            "disk": sum(costs.disk.values()),
            "wire": costs.wire_total,
        }
    return {"costs": found}


def _by_size(fit: tuple[float, float], size: float) -> float:
    return fit[0] + fit[1] * size


def measure(weights: int, folder: Path, chains: int) -> Row:
    """Run a chain, in one process or as one of several."""
    base = peak_memory()
    layout = csgmcmc.init_distributed(chains)
    measure_chain(chain_of(SIZES[0], None, None), folder / "small", seconds=0.1)  # loads kernels
    appended, saved = Timed(csgmcmc.DrawStore, "append"), Timed(csgmcmc.Chain, "_save")
    chain = chain_of(weights, csgmcmc.DrawStore(folder / "run"), layout)
    wire, began = _loopback(), time.perf_counter()
    chain.run()
    seconds = time.perf_counter() - began
    writing = sum(appended.seconds) + sum(saved.seconds)
    row: Row = {
        "step": (seconds - writing) / chain.schedule.steps,
        "draw": appended.typical() if layout.writes else 0.0,
        "checkpoint": saved.typical() if layout.writes else 0.0,
        "run": seconds,
        "memory": peak_memory() - base,
        "wire": _loopback() - wire,
    }
    row |= {f"{name}, by size": row[name] for name in ("draw", "checkpoint")}
    row["disk"] = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file())
    csgmcmc.shutdown_distributed()
    return row


def _loopback() -> int:
    """Bytes that processes of this machine have sent each other."""
    line = next(
        line
        for line in Path("/proc/net/dev").read_text().splitlines()
        if line.strip().startswith("lo:")
    )
    return int(line.split()[9])


def started(kind: str, weights: int, folder: Path, chains: int = 1, processes: int = 1) -> Row:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes)}
    if processes > 1:
        shared["OMP_NUM_THREADS"] = "1"  # as torchrun does
    command = [
        sys.executable,
        "-m",
        "benchmarks.planning",
        "--kind",
        kind,
        "--weights",
        str(weights),
    ]
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
            for place in folder.iterdir():
                shutil.rmtree(place)
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
