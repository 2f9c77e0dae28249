"""Two processes of one thread each beside one process of one thread: near-linear is 0.5.

    python benchmarks/processes.py [predictions] [run] [fits]

Writes runs/bench/processes.json, or processes-NAME.json of the parts that are named.
"""

import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # also of the processes that are started

import torch
import torch.distributed as dist
from sklearn.datasets import load_breast_cancer, load_diabetes
from timing import Case, report
from torch import nn

from csgmcmc import MemoryDraws, Posterior, init_distributed, shutdown_distributed
from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor

DRAWS, BATCHES, ROWS = 8, 8, 400
MODEL = "MLP 784-1200-1200-10"

SCRIPT = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

def make_run():
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(1000, 784, generator=generator), torch.arange(1000) % 10)
    model = nn.Sequential(nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 10))
    recipe = csgmcmc.Recipe(lr=0.01, epochs=400, cycles=4, draws_per_cycle=2, seed=0)
    loader = DataLoader(data, batch_size=100, shuffle=True)
    return csgmcmc.Task(model, cross_entropy, loader, recipe=recipe)
"""


def join(rank: int, port: int) -> None:
    """Make this process one of two."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {**address, "RANK": str(rank), "WORLD_SIZE": "2"}
    torch.set_num_threads(1)
    init_distributed()


def network() -> nn.Module:
    layers = (nn.Linear(784, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(1200, 10))


def predictor() -> Callable[[Any], object]:
    """Predicts the same data, shared as it is told."""
    torch.manual_seed(0)
    draws = MemoryDraws()
    for step in range(DRAWS):
        draws.append(network(), step=step)
    posterior = Posterior(network(), draws, progress=False)
    loader = [torch.randn(ROWS, 784) for _ in range(BATCHES)]
    return lambda share: posterior.predict_loader(loader, share=share)


def second_process(port: int) -> None:
    """Does its part of what the first says, until that says nothing more."""
    join(1, port)
    predict, told = predictor(), ["draws"]
    while told[0] is not None:
        dist.broadcast_object_list(told, src=0)
        if told[0] is not None:
            predict(told[0])
    shutdown_distributed()


def together(predict: Callable[[Any], object], share: str) -> None:
    dist.broadcast_object_list([share], src=0)
    predict(share)


def predictions() -> Case:
    predict = predictor()
    name = f"{MODEL}, {DRAWS} draws, {BATCHES} batches of {ROWS}: predict_loader"
    works: dict[str, Callable[[], object]] = {
        "one process": partial(predict, None),
        'two, share="draws"': partial(together, predict, "draws"),
        'two, share="data"': partial(together, predict, "data"),
    }
    return Case(name, works, repeats=1, rounds=7)


def command(folder: Path, jobs: int) -> None:
    """A run from the beginning, with the start of Python and of the processes."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    start = [sys.executable, "-c", "from csgmcmc.cli import app; app()"]
    options = ["--chains", "4", "--jobs", str(jobs), "--out", "out", "--no-report"]
    variables = {name: value for name, value in os.environ.items() if name != "WORLD_SIZE"}
    words = [*start, "run", "mine:make_run", *options]
    subprocess.run(words, cwd=folder, env=variables, check=True, capture_output=True)


def run(folder: Path) -> Case:
    (folder / "mine.py").write_text(SCRIPT)
    works: dict[str, Callable[[], object]] = {
        f"--jobs {jobs}": partial(command, folder, jobs) for jobs in (1, 2)
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
    wanted = sys.argv[1:] or ["predictions", "run", "fits"]
    folder = Path(tempfile.mkdtemp())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cases: list[Case] = []
    torch.set_num_threads(1)
    other = None
    if "predictions" in wanted:
        other = multiprocessing.get_context("spawn").Process(target=second_process, args=(port,))
        other.start()
        join(0, port)
        cases.append(predictions())
    if "run" in wanted:
        cases.append(run(folder))
    if "fits" in wanted:
        cases += fits()
    report("-".join(["processes", *sys.argv[1:]]), cases)
    if other is not None:
        dist.broadcast_object_list([None], src=0)
        shutdown_distributed()
        other.join()
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
