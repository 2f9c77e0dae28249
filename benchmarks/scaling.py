"""How cost grows with parameters, chains and draws: a table and a picture.

    make bench

Writes runs/bench/scaling.json and runs/bench/scaling.png.
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console

from csgmcmc import SGHMC, SGLD, Constant, Keep, MemoryDraws, Posterior
from paper.density import run_density
from paper.networks import mlp
from paper.targets import Mixture25

OUT = Path("runs/bench")


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    work()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def step_with(parameters: int) -> float:
    """One step of SGHMC at T > 0, the gradient given."""
    param = torch.zeros(parameters)
    param.grad = torch.ones(parameters)
    sampler = SGHMC([param], lr=1e-4, num_data=1000, seed=0)
    return seconds(sampler.step)


def step_of(chains: int) -> float:
    """One step of SGLD on 25 Gaussians."""
    points = torch.randn(chains, 2)
    sampler = SGLD([points], lr=0.01, num_data=1, seed=0)
    schedule = Constant(160, keep=Keep(every=160))
    return seconds(lambda: run_density(Mixture25(), sampler, schedule), 3) / schedule.steps


def prediction_with(draws: int) -> float:
    """An MLP 784-400-400-10, batch 100."""
    kept, inputs = MemoryDraws(), torch.randn(100, 784)
    model = mlp(784, 400, 400, 10)
    for step in range(draws):
        kept.append(model, step=step)
    posterior = Posterior(model, kept)
    return seconds(lambda: posterior.predict(inputs), 3)


SERIES = {
    "step of SGHMC, T > 0": ("parameters", step_with, [10**k for k in range(4, 9)]),
    "step on 25 Gaussians": ("chains", step_of, [4**k for k in range(7)]),
    "prediction, batch 100": ("draws", prediction_with, [1, 10, 100, 1000]),
}


def main() -> None:
    results = {}
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for axes, (title, (what, measure, sizes)) in zip(
        figure.subplots(1, len(SERIES)), SERIES.items(), strict=True
    ):
        times = [measure(size) for size in sizes]
        results[title] = {what: sizes, "seconds": times}
        listed = ", ".join(f"{s:g}: {1e3 * t:.3g} ms" for s, t in zip(sizes, times, strict=True))
        Console().print(f"{title}, by {what}: {listed}", highlight=False, soft_wrap=True)
        axes.loglog(sizes, [1e3 * t for t in times], "o-", color="#0072B2")
        axes.set(title=title, xlabel=what, ylabel="milliseconds")
        axes.spines[["top", "right"]].set_visible(False)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "scaling.json").write_text(json.dumps(results, indent=2) + "\n")
    figure.savefig(OUT / "scaling.png", dpi=110)
    Console().print(f"written: {OUT}/scaling.json, {OUT}/scaling.png")


if __name__ == "__main__":
    main()
