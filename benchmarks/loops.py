"""Whole runs: `Chain` beside a loop by hand, and sampling beside training, in one run, as ratios.

    make bench

Writes runs/bench/loops.json.
"""

from collections.abc import Callable, Iterator

import torch
from timing import Case, report
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, Chain, Cyclical, MemoryDraws
from paper.networks import mlp, resnet20

Batch = tuple[Tensor, Tensor]


class Batches:
    """Random batches of data in memory, as the loop of the README takes them."""

    def __init__(self, inputs: Tensor, labels: Tensor, size: int) -> None:
        self.inputs, self.labels, self.size = inputs, labels, size

    def one(self) -> Batch:
        rows = torch.randint(len(self.inputs), (self.size,))
        return self.inputs[rows], self.labels[rows]

    def __iter__(self) -> Iterator[Batch]:
        for _ in range(len(self)):
            yield self.one()

    def __len__(self) -> int:
        return len(self.inputs) // self.size


def make_sampler(model: nn.Module, temperature: float) -> SGHMC:
    return SGHMC(
        model.parameters(),
        lr=0.01,
        momentum=0.9,
        weight_decay=1e-4,
        num_data=2000,
        temperature=temperature,
        seed=0,
    )


def by_hand(make: Callable[[], nn.Module], data: Batches, schedule: Cyclical) -> Callable[[], None]:
    """The loop of the README."""

    def work() -> None:
        model, draws = make(), MemoryDraws()
        sampler = make_sampler(model, temperature=1.0)
        for step in range(schedule.steps):
            inputs, labels = data.one()
            tick = schedule.apply(sampler, step)
            sampler.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            sampler.step()
            if tick.collect:
                draws.append(model, step=tick.step, cycle=tick.cycle, stage=tick.stage)

    return work


def with_chain(
    make: Callable[[], nn.Module], data: Batches, schedule: Cyclical
) -> Callable[[], None]:
    def work() -> None:
        model = make()
        sampler = make_sampler(model, temperature=1.0)
        Chain(model, cross_entropy, data, sampler, schedule, progress=False).run()

    return work


def training(make: Callable[[], nn.Module], data: Batches, steps: int) -> Callable[[], None]:
    """As many steps of `torch.optim.SGD` with momentum."""

    def work() -> None:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        for _ in range(steps):
            inputs, labels = data.one()
            optimizer.zero_grad()
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    return work


def steps_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch
) -> Callable[[], None]:
    def work() -> None:
        optimizer.zero_grad()
        cross_entropy(model(batch[0]), batch[1]).backward()
        optimizer.step()

    return work


def resnet_case() -> Case:
    """Forward, backward and step of ResNet-20 in channels_last, batch 128."""
    images = torch.randn(128, 3, 32, 32).to(memory_format=torch.channels_last)
    batch = (images, torch.randint(10, (128,)))
    works: dict[str, Callable[[], object]] = {}
    for name, temperature in (("torch SGD", None), ("SGHMC, T = 0", 0.0), ("SGHMC, T = 1", 1.0)):
        model = resnet20()
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        if temperature is None:
            optimizer = torch.optim.SGD(
                model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4
            )
        else:
            optimizer = make_sampler(model, temperature)
        works[name] = steps_of(model, optimizer, batch)
    return Case("step of ResNet-20, batch 128", works, repeats=3, rounds=31)


def main() -> None:
    schedule = Cyclical(400, cycles=2, exploration=0.8, draws_per_cycle=3)
    digits = Batches(torch.randn(1400, 64), torch.randint(10, (1400,)), 64)
    mnist = Batches(torch.randn(2000, 784), torch.randint(10, (2000,)), 100)

    def small() -> nn.Module:
        return mlp(64, 64, 10)

    def large() -> nn.Module:
        return mlp(784, 400, 400, 10)

    cases = [
        Case(
            "400 steps of MLP 64-64-10, batch 64, as in the README",
            {
                "by hand": by_hand(small, digits, schedule),
                "Chain": with_chain(small, digits, schedule),
            },
            repeats=1,
        ),
        Case(
            "400 steps of MLP 784-400-400-10, batch 100",
            {
                "torch SGD": training(large, mnist, schedule.steps),
                "cSGHMC by hand": by_hand(large, mnist, schedule),
                "cSGHMC in Chain": with_chain(large, mnist, schedule),
            },
            repeats=1,
        ),
        resnet_case(),
    ]
    report("loops", cases)


if __name__ == "__main__":
    main()
