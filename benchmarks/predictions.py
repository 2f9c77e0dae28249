"""Time and memory of predicting with many draws, beside plain loops over as many models.

    make bench

The draws come from a store, as a user's would; the plain loops have all their models in memory.
Writes runs/bench/predictions.json and runs/bench/prediction-memory.json.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from timing import Case, report

from csgmcmc import DrawStore, Posterior
from paper.networks import mlp

SMALL, MNIST = (64, 64, 10), (784, 400, 400, 10)
CASES = [  # layers, batch, draws
    (SMALL, 1, 50),
    (SMALL, 100, 50),
    (MNIST, 1, 10),
    (MNIST, 100, 10),
    (MNIST, 100, 50),
    (MNIST, 1000, 10),
]


def make_store(folder: Path, sizes: tuple[int, ...], draws: int) -> DrawStore:
    torch.manual_seed(0)
    store = DrawStore(folder)
    for step in range(draws):
        store.append(mlp(*sizes), step=step)
    store.close()
    return store


def prediction_case(folder: Path, sizes: tuple[int, ...], batch: int, draws: int) -> Case:
    layers = "-".join(map(str, sizes))
    store = make_store(folder / f"{layers}-{batch}-{draws}", sizes, draws)
    inputs = torch.randn(batch, sizes[0])
    models = [mlp(*sizes).eval() for _ in store]
    for model, draw in zip(models, store, strict=True):
        draw.load_into(model)

    @torch.inference_mode()
    def plain() -> None:
        for model in models:
            model(inputs)

    @torch.inference_mode()
    def averaged() -> None:
        torch.stack([model(inputs).softmax(-1) for model in models]).mean(0)

    works: dict[str, Callable[[], object]] = {
        "plain forwards": plain,
        "plain forwards, averaged": averaged,
    }
    for name, choice in (("by default", None), ("one by one", False), ("stacked", True)):
        posterior = Posterior(mlp(*sizes), store, vectorize=choice)
        works[f"Posterior, {name}"] = lambda posterior=posterior: posterior.predict(inputs)
    return Case(f"{layers}, batch {batch}, {draws} draws", works, repeats=10)


def measure_memory(folder: Path) -> None:
    """Peak memory of a new process that predicts with no draw, with 10 and with 500."""
    peaks = {}
    for draws in (10, 500):
        path = make_store(folder / f"memory-{draws}", MNIST, draws).path
        peaks[draws] = int(subprocess.check_output([sys.executable, __file__, path]))
    peaks[0] = int(subprocess.check_output([sys.executable, __file__, ""]))
    path = Path("runs/bench/prediction-memory.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"peak_bytes": peaks, "ratio": peaks[500] / peaks[10]}) + "\n")
    megabytes = {draws: f"{peak / 2**20:.0f} MiB" for draws, peak in peaks.items()}
    Console().print(
        f"peak memory: {megabytes[10]} with 10 draws, {megabytes[500]} with 500, ratio "
        f"{peaks[500] / peaks[10]:.3f}; {megabytes[0]} before predicting. written: {path}"
    )


def tell_peak_memory(store: str) -> None:
    """In the new process: predict, and print the peak in bytes."""
    model, inputs = mlp(*MNIST), torch.randn(100, MNIST[0])
    if store:
        posterior = Posterior(model, DrawStore(store))
        for _ in range(5):
            posterior.predict(inputs)
    # Not getrusage, whose peak counts the process that started this one.
    status = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
    sys.stdout.write(str(int(status["VmHWM"].removesuffix("kB")) * 1024))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report("predictions", [prediction_case(Path(folder), *case) for case in CASES])
        measure_memory(Path(folder))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        tell_peak_memory(sys.argv[1])
    else:
        main()
