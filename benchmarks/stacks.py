"""Time of a step of C stacked chains beside C chains run one after another, in one run.

    make bench

Writes runs/bench/stacks.json.
"""

from collections.abc import Callable
from typing import Any

import torch
from timing import Case, report
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, Chain, Constant, stack

CHAINS = (1, 4, 16, 64)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    )


def logistic() -> nn.Module:
    return nn.Linear(25, 2)


def step_of(model: nn.Module, inputs: int, classes: int, batch: int) -> Callable[[], object]:
    """One step of the loop, on one batch."""
    sampler = SGHMC(model.parameters(), lr=1e-3, num_data=1000, seed=1)
    data: Any = [(torch.randn(batch, inputs), torch.randint(classes, (batch,)))]
    chain = Chain(model, cross_entropy, data, sampler, Constant(10**9), progress=False)
    return chain._step


def compare(make: Callable[[], nn.Module], *sizes: int, name: str, repeats: int) -> list[Case]:
    alone = step_of(make(), *sizes)

    def one_by_one(chains: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(chains):
                alone()

        return work

    return [
        Case(
            f"{name}, {chains} chains",
            {
                "one by one": one_by_one(chains),
                "stacked": step_of(stack(make, chains=chains), *sizes),
            },
            max(3, repeats // chains),
        )
        for chains in CHAINS
    ]


def main() -> None:
    small = compare(logistic, 25, 2, 32, name="logistic regression, 25 features", repeats=100)
    large = compare(mlp, 784, 10, 100, name="MLP 784-400-400-10, batch 100", repeats=20)
    report("stacks", [*small, *large])


if __name__ == "__main__":
    main()
