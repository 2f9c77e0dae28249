"""Two processes of one thread each beside one process of one thread: near-linear is 0.5.

    python benchmarks/processes.py

Writes runs/bench/processes.json.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # also of the processes that are started

import torch
from timing import Case, report

SCRIPT = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

def make_chain(draws, chain_id):
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(1000, 784, generator=generator), torch.arange(1000) % 10)
    model = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 10))
    loader = DataLoader(data, batch_size=100, shuffle=True)
    sampler = csgmcmc.SGHMC(
        model.parameters(), 0.01, num_data=1000, weight_decay=1e-4, seed=0, chain_id=chain_id
    )
    schedule = csgmcmc.Cyclical(4000, 4, exploration=0.8, draws_per_cycle=2)
    return csgmcmc.Chain(model, cross_entropy, loader, sampler, schedule, draws)

layout = csgmcmc.init_distributed()
for chain_id in range(layout.chain_id, 4, layout.chains):
    torch.manual_seed(chain_id)
    make_chain(csgmcmc.DrawStore("out"), chain_id).run()
csgmcmc.shutdown_distributed()
"""


def command(folder: Path, processes: int) -> None:
    """A run from the beginning, with the start of Python and of the processes."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    variables = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"}
    subprocess.run([*start, "mine.py"], cwd=folder, env=variables, check=True, capture_output=True)


def run(folder: Path) -> Case:
    (folder / "mine.py").write_text(SCRIPT)
    works: dict[str, Callable[[], object]] = {
        name: partial(command, folder, processes)
        for name, processes in {"one process": 1, "torchrun, two processes": 2}.items()
    }
    name = "MLP 784-400-10, 4,000 steps: four chains, from start to end"
    return Case(name, works, repeats=1, rounds=2)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    torch.set_num_threads(1)
    report("processes", [run(folder)])
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
