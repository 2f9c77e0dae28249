"""Time of a step of every sampler beside `torch.optim.SGD`, in one run, as ratios.

    make bench

All optimizers take turns, round after round, so that a slow moment of the machine hits each of
them; a ratio is that of two medians within a round, and what is shown is the middle of the rounds'
ratios with the interval that holds it in 95 of 100 resamplings. Writes runs/bench/steps.json.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from csgmcmc.samplers import discover

ROUNDS, REPEATS, WARM_UP = 15, 30, 10
BASELINE = "torch SGD, momentum 0.9"


def optimizers(make_params: Callable[[], list[nn.Parameter]]) -> dict[str, torch.optim.Optimizer]:
    """The baseline, and every sampler at temperature 0 and 1."""
    found: dict[str, Any] = {BASELINE: torch.optim.SGD(make_params(), lr=1e-4, momentum=0.9)}
    for name, sampler in discover().items():
        for temperature in (0.0, 1.0):
            options: Any = {"lr": 1e-4, "num_data": 60_000, "temperature": temperature, "seed": 1}
            found[f"{name}, T = {temperature:g}"] = sampler(make_params(), **options)
    return found


def median_time(work: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(works: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Median time of each of `works` in each round."""
    for work in works.values():
        for _ in range(WARM_UP):
            work()
    rounds = [{name: median_time(work) for name, work in works.items()} for _ in range(ROUNDS)]
    return {name: [one[name] for one in rounds] for name in works}


def ratio(times: list[float], baseline: list[float]) -> tuple[float, float, float]:
    """Middle of the rounds' ratios, and a bootstrap interval for it."""
    ratios = np.array(times) / np.array(baseline)
    resampled = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    return float(np.median(ratios)), float(low), float(high)


def step_of(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """The step alone, gradients given."""
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.full_like(param, 1e-3)
    return optimizer.step


def training_step_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Forward, backward and step on one batch."""
    inputs, labels = torch.randn(100, 784), torch.randint(10, (100,))

    def work() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return work


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    )


def cases() -> dict[str, dict[str, Callable[[], object]]]:
    tiny = optimizers(lambda: [nn.Parameter(torch.zeros(4, 2))])
    steps = optimizers(lambda: list(mlp().parameters()))
    models: list[nn.Module] = []

    def new_model() -> list[nn.Parameter]:
        models.append(mlp())
        return list(models[-1].parameters())

    training = optimizers(new_model)
    return {
        "step alone, one tensor of 4 x 2": {name: step_of(o) for name, o in tiny.items()},
        "step alone, MLP 784-400-400-10": {name: step_of(o) for name, o in steps.items()},
        "forward, backward and step, MLP 784-400-400-10, batch 100": {
            name: training_step_of(model, optimizer)
            for model, (name, optimizer) in zip(models, training.items(), strict=True)
        },
    }


def main() -> None:
    console, results = Console(), []
    for case, works in cases().items():
        times = measure(works)
        table = Table("", "microseconds", "ratio to SGD", "95% interval", title=case)
        for name, rounds in times.items():
            middle, low, high = ratio(rounds, times[BASELINE])
            microseconds = 1e6 * statistics.median(rounds)
            table.add_row(name, f"{microseconds:.0f}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}")
            row = {"microseconds": microseconds, "ratio": middle, "interval": [low, high]}
            results.append({"case": case, "optimizer": name, **row})
        console.print(table)
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    machine = {"machine": platform.machine(), "threads": torch.get_num_threads(), **versions}
    path = Path("runs/bench/steps.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine, "results": results}, indent=2) + "\n")
    console.print(f"written: {path}")


if __name__ == "__main__":
    main()
