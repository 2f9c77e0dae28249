"""Two processes of one thread each beside one process of one thread: near-linear is 0.5.

    python benchmarks/processes.py [run] [fits]

Writes runs/bench/processes.json, or processes-NAME.json of the parts that are named.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # also of the processes that are started

import torch
from sklearn.datasets import load_breast_cancer, load_diabetes
from timing import Case, report

from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor

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
"""


def command(folder: Path, processes: int) -> None:
    """A run from the beginning, with the start of Python and of the processes."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    start = [sys.executable, "-c", "from csgmcmc.cli import app; app()"]
    if processes > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
        start = [*launcher, f"--nproc-per-node={processes}", *start]
    variables = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"}
    words = [*start, "run", "mine:make_chain", "--chains", "4", "--out", "out"]
    subprocess.run(words, cwd=folder, env=variables, check=True, capture_output=True)


def run(folder: Path) -> Case:
    (folder / "mine.py").write_text(SCRIPT)
    works: dict[str, Callable[[], object]] = {
        name: partial(command, folder, processes)
        for name, processes in {"one process": 1, "torchrun, two processes": 2}.items()
    }
    name = "MLP 784-400-10, 4,000 steps: csgmcmc run --chains 4, from start to end"
    return Case(name, works, repeats=1, rounds=2)


def fit(kind: Any, table: Any, jobs: int) -> None:
    kind(chains=4, random_state=0, n_jobs=jobs).fit(*table)


def fits() -> list[Case]:
    cases = []
    kinds = {BayesianMLPClassifier: load_breast_cancer, BayesianMLPRegressor: load_diabetes}
    for kind, load in kinds.items():
        table: Any = load(return_X_y=True)
        works: dict[str, Callable[[], object]] = {
            f"n_jobs={jobs}": partial(fit, kind, table, jobs) for jobs in (1, 2)
        }
        name = f"{kind.__name__}, 4 chains, {len(table[0])} rows: fit"
        cases.append(Case(name, works, repeats=1, rounds=2))
    return cases


def main() -> None:
    wanted = sys.argv[1:] or ["run", "fits"]
    folder = Path(tempfile.mkdtemp())
    cases: list[Case] = []
    torch.set_num_threads(1)
    if "run" in wanted:
        cases.append(run(folder))
    if "fits" in wanted:
        cases += fits()
    report("-".join(["processes", *sys.argv[1:]]), cases)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
