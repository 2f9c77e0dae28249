"""Memory that a process needs for a draw or a checkpoint of a sharded model, beside its shard.

    python benchmarks/sharded_draws.py [--processes 4] [--weights 40000000]

Each process (gloo, on this machine) reads its peak of resident memory from the system, which is set
back before each action. Writes runs/bench/sharded_draws.json.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from csgmcmc import SGHMC, Constant, DrawStore, Stepper, init_distributed, shutdown_distributed
from csgmcmc.loop.checkpoint import Checkpoints, restore, save_together
from csgmcmc.shards import local_shard, whole_tensor

LAYERS = 40


def memory(field: str) -> int:
    """Bytes of VmRSS, the memory that is resident now, or of VmHWM, its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def measure(action: Callable[[], object]) -> dict[str, float]:
    """Memory that an action needs at its peak, besides what was resident before it."""
    dist.barrier()
    before, start = memory("VmRSS"), time.perf_counter()
    Path("/proc/self/clear_refs").write_text("5")
    action()
    seconds = time.perf_counter() - start
    return {"extra": memory("VmHWM") - before, "seconds": seconds}


def sharded_model(weights: int) -> nn.Module:
    """Layers whose whole weights no process ever holds."""
    width = round((weights / LAYERS) ** 0.5)
    with torch.device("meta"):
        model = nn.Sequential(*[nn.Linear(width, width) for _ in range(LAYERS)])
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    for param in model.parameters():
        local_shard(param.data).normal_()
    return model


def work(rank: int, processes: int, port: int, weights: int, folder: Path) -> None:
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {**address, "RANK": str(rank), "WORLD_SIZE": str(processes)}
    torch.set_num_threads(1)
    here = init_distributed(chains=1)
    model = sharded_model(weights)
    shard = sum(local_shard(param).nbytes for param in model.parameters())
    stores = {
        "a draw": DrawStore(folder / "float32"),
        "a draw, dtype=torch.bfloat16": DrawStore(folder / "bfloat16", dtype=torch.bfloat16),
    }
    for store in stores.values():
        store.append(model, step=0)  # loads what is loaded once
    found = {
        name: measure(lambda store=store: store.append(model, step=1))
        for name, store in stores.items()
    }
    store = stores["a draw"]
    found["load_into, first time"] = measure(lambda: store[1].load_into(model))
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=1, seed=0)
    for param in model.parameters():
        sampler.state[param]["velocity"] = torch.zeros_like(param)
    stepper = Stepper(model, sampler, Constant(1), layout=here)
    checkpoints = Checkpoints(folder / "checkpoints", "0000")
    checkpoints.newest.parent.mkdir(exist_ok=True)
    save_together(checkpoints, stepper, {})
    found["a checkpoint (weights and velocities)"] = measure(
        lambda: save_together(checkpoints, stepper, {})
    )
    resume = partial(restore, checkpoints, stepper)
    found["resuming from it"] = measure(lambda: checkpoints.load(resume, stepper.layout))
    found["the weights, gathered by full_tensor"] = measure(
        lambda: {name: whole_tensor(value) for name, value in model.state_dict().items()}
    )
    rows = {name: {**row, "shard": shard} for name, row in found.items()}
    (folder / f"{rank}.json").write_text(json.dumps(rows))
    shutdown_distributed()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--weights", type=int, default=40_000_000)
    asked = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp())
    context = multiprocessing.get_context("fork")
    started = [
        context.Process(target=work, args=(rank, asked.processes, port, asked.weights, folder))
        for rank in range(asked.processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
        assert process.exitcode == 0
    rows = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(asked.processes)]
    shutil.rmtree(folder)
    out = Path("runs/bench/sharded_draws.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({**vars(asked), "rows": rows}, indent=1))
    shard = max(row["a draw"]["shard"] for row in rows) / 1e6
    print(f"{asked.weights:,} weights, {asked.processes} processes with shards of {shard:.1f} MB")
    print(f"{'MB beside the shard':40} {'first process':>14} {'others':>8}")
    for name in rows[0]:
        first, *others = (row[name]["extra"] / 1e6 for row in rows)
        print(f"{name:40} {first:14.1f} {max(others):8.1f}")


if __name__ == "__main__":
    main()
