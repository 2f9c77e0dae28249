"""Time of a step of every sampler beside `torch.optim.SGD`, in one run, as ratios.

    make bench

Writes runs/bench/steps.json.
"""

from collections.abc import Callable
from typing import Any

import torch
from timing import Case, report
from torch import nn

from csgmcmc.samplers import discover


def optimizers(
    make_params: Callable[[], list[nn.Parameter]], only: str = ""
) -> dict[str, torch.optim.Optimizer]:
    """The baselines, and every sampler (or one) at temperature 0 and 1."""
    baseline = torch.optim.SGD(make_params(), lr=1e-4, momentum=0.9)
    found: dict[str, Any] = {"torch SGD, momentum 0.9": baseline}
    found["torch Adam"] = torch.optim.Adam(make_params(), lr=1e-4)
    chosen = {name: sampler for name, sampler in discover().items() if only in ("", name)}
    for name, sampler in chosen.items():
        for temperature in (0.0, 1.0):
            options: Any = {"lr": 1e-4, "num_data": 60_000, "temperature": temperature, "seed": 1}
            found[f"{name}, T = {temperature:g}"] = sampler(make_params(), **options)
    return found


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


def training_case(name: str) -> Case:
    """One sampler beside the baseline, and nothing else in memory, as in a user's run."""
    models: list[nn.Module] = []

    def new_model() -> list[nn.Parameter]:
        models.append(mlp())
        return list(models[-1].parameters())

    works = {
        what: training_step_of(model, optimizer)
        for (what, optimizer), model in zip(
            optimizers(new_model, only=name).items(), models, strict=True
        )
    }
    return Case(f"forward, backward and step, MLP 784-400-400-10, batch 100, {name}", works)


def main() -> None:
    training = [training_case(name) for name in discover()]
    tiny = optimizers(lambda: [nn.Parameter(torch.zeros(4, 2))])
    steps = optimizers(lambda: list(mlp().parameters()))
    alone = {
        "step alone, one tensor of 4 x 2": {name: step_of(o) for name, o in tiny.items()},
        "step alone, MLP 784-400-400-10": {name: step_of(o) for name, o in steps.items()},
    }
    report("steps", [*training, *(Case(name, works) for name, works in alone.items())])


if __name__ == "__main__":
    main()
