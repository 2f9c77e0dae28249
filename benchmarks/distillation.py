"""One network trained on the averaged probabilities, beside the average and plain training.

    python benchmarks/distillation.py

Data, network and number of steps are those of the digits demo: 200 training digits for each seed,
and letters as data of another kind. The teacher is the demo's cSGHMC, plain training its SGDM, both
with the demo's settings. A student is SGDM, with the teacher's probabilities as targets. Weight
decay and the size of the noise minimise the NLL on validation data, with other seeds than those of
the table; test data and letters are used for the table only. The last row is a control: mixtures of
inputs with mixtures of their labels, without an average. Writes runs/bench/distillation.json.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from csgmcmc import SGHMC, Chain, Cyclical, Posterior, stack
from csgmcmc.diagnostics import auroc, negative_log_likelihood
from examples.demo.digits import (
    BATCH,
    METHODS,
    MOMENTUM,
    TRAINING_DIGITS,
    BatchesOfSeeds,
    DigitsDemo,
    make_model,
    predict,
    sample,
    score,
)
from paper.data import load_letters

SEARCH = DigitsDemo(first_seed=100, seeds=10)
TABLE = DigitsDemo(first_seed=0, seeds=20)
SGDM, _, CSGHMC = METHODS
POOL = 5000  # inputs that the teacher labels for each seed


@dataclass(frozen=True)
class Student:
    """How a student is trained: on which inputs, with which weight decay and targets."""

    inputs: str
    noise: float = 0.0
    weight_decay: float = 0.0
    targets: str = "averages"


CANDIDATES = {
    "training digits": [
        Student("digits", weight_decay=weight_decay) for weight_decay in (0.0, 3e-4, 1e-3, 3e-3)
    ],
    "training digits with noise": [
        Student("digits", noise, weight_decay)
        for noise in (0.1, 0.3)
        for weight_decay in (0.0, 3e-4)
    ],
    "mixtures of two training digits": [
        Student("mixtures", noise, weight_decay)
        for noise in (0.0, 0.1)
        for weight_decay in (0.0, 3e-4)
    ],
    "mixtures of two training digits and of their labels": [
        Student("mixtures", 0.0, weight_decay, "labels") for weight_decay in (0.0, 1e-3, 3e-3, 1e-2)
    ],
}


def make_pool(
    student: Student, images: Tensor, labels: Tensor, random: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Inputs made of training images, and the labels of those, as probabilities."""
    targets = one_hot(labels, 10).float()
    if student.inputs == "digits" and not student.noise:
        return images, targets
    rows = torch.randint(len(images), (POOL,), generator=random)
    pool, targets_of_pool = images[rows], targets[rows]
    if student.inputs == "mixtures":
        other = torch.randint(len(images), (POOL,), generator=random)
        share = torch.rand(POOL, 1, 1, 1, generator=random)
        pool = share * pool + (1 - share) * images[other]
        share = share.flatten(1)
        targets_of_pool = share * targets_of_pool + (1 - share) * targets[other]
    return pool + student.noise * torch.randn(pool.shape, generator=random), targets_of_pool


class PoolBatches:
    """Minibatches for a stack of students: those of the first seed, then of the second, and so on.

    Every seed has its own pool, and the probabilities of its own teacher.
    """

    draws_globally = False  # the order is from its own generator

    def __init__(self, pools: Tensor, targets: Tensor) -> None:
        self.pools, self.targets = pools, targets
        self.random = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return self.pools.shape[1] // BATCH

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.randperm(self.pools.shape[1], generator=self.random).split(BATCH):
            yield self.pools[:, rows].flatten(0, 1), self.targets[:, rows].flatten(0, 1)


def distil(demo: DigitsDemo, teachers: list[Posterior], student: Student) -> list[Posterior]:
    """A student for each seed."""
    images, labels = demo.data.train.tensors
    rows = BatchesOfSeeds(images, labels, demo.seed_numbers).rows  # what the teachers have seen
    pools, targets = zip(
        *[
            make_pool(student, images[own], labels[own], torch.Generator().manual_seed(seed))
            for own, seed in zip(rows, demo.seed_numbers, strict=True)
        ],
        strict=True,
    )
    if student.targets == "averages":
        predictions = [each.predict(pool) for each, pool in zip(teachers, pools, strict=True)]
        targets = [p.probs for p in predictions]  # pyright: ignore[reportAttributeAccessIssue]
    model = stack([make_model(seed) for seed in demo.seed_numbers], separate_batches=True)
    sampler = SGHMC(
        model.parameters(),
        SGDM.lr,
        momentum=MOMENTUM,
        num_data=TRAINING_DIGITS,
        temperature=0.0,
        weight_decay=student.weight_decay,
    )
    data = PoolBatches(torch.stack(list(pools)), torch.stack(list(targets)))
    schedule = Cyclical(demo.steps, cycles=1, exploration=demo.exploration, draws_per_cycle=1)
    quiet: dict[str, Any] = {"watch": False, "progress": False}
    draws = Chain(model, cross_entropy, data, sampler, schedule, **quiet).run()
    chains = [draws.of_chain(number) for number in range(demo.seeds)]
    return [Posterior(make_model(0), one, progress=False) for one in chains]


def validation_nll(demo: DigitsDemo, posteriors: list[Posterior]) -> float:
    found = [predict(posterior, demo.data.validation) for posterior in posteriors]
    return float(
        np.mean([negative_log_likelihood(p.probs_numpy(), p.labels_numpy()) for p in found])
    )


def choose(tell: Callable[[str], None]) -> dict[str, Student]:
    """For each kind of inputs the student with the lowest NLL on validation data."""
    teachers = sample(SEARCH, CSGHMC)
    tell(f"teacher: validation NLL {validation_nll(SEARCH, teachers):.4f}")
    chosen = {}
    for name, candidates in CANDIDATES.items():
        found = {}
        for student in candidates:
            found[student] = validation_nll(SEARCH, distil(SEARCH, teachers, student))
            tell(f"{student}: validation NLL {found[student]:.4f}")
        chosen[name] = min(found, key=found.__getitem__)
    return chosen


def scores(demo: DigitsDemo, posteriors: list[Posterior]) -> dict[str, NDArray[np.float64]]:
    """By name, one number for each seed."""
    found = [
        score(demo, SGDM, seed, posterior)
        for seed, posterior in zip(demo.seed_numbers, posteriors, strict=True)
    ]
    names = ("error", "nll", "calibration_error", "auroc")
    values = {name: np.array([getattr(one, name) for one in found]) for name in names}
    if len(posteriors[0].draws) > 1:
        letters = load_letters()
        pairs = [(predict(each, demo.data.test), each.predict(letters)) for each in posteriors]
        values["auroc_of_mutual_information"] = np.array(
            [auroc(a.mutual_information.numpy(), b.mutual_information.numpy()) for a, b in pairs]
        )
    return values


def shown(values: NDArray[np.float64], percent: bool = False) -> str:
    """Mean and standard error over seeds."""
    scale, digits = (100, 1) if percent else (1, 3)
    mean, error = values.mean() * scale, values.std(ddof=1) / len(values) ** 0.5 * scale
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def table(found: dict[str, dict[str, NDArray[np.float64]]]) -> str:
    teacher = found["average"]
    lines = [
        "| | error % | NLL | NLL above the average's | calibration error | AUROC, letters |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        gap = "" if one is teacher else shown(one["nll"] - teacher["nll"])
        rest = f"{shown(one['calibration_error'])} | {shown(one['auroc'])}"
        lines.append(
            f"| {name} | {shown(one['error'], True)} | {shown(one['nll'])} | {gap} | {rest} |"
        )
    return "\n".join(lines)


def main() -> None:
    console = Console(highlight=False, soft_wrap=True)
    chosen = choose(console.print)
    teachers = sample(TABLE, CSGHMC)
    found = {"average": scores(TABLE, teachers), "plain": scores(TABLE, sample(TABLE, SGDM))}
    for name, student in chosen.items():
        found[name] = scores(TABLE, distil(TABLE, teachers, student))
    console.print(table(found))
    console.print(
        f"by mutual information: {shown(found['average']['auroc_of_mutual_information'])}"
    )
    path = Path("runs/bench/distillation.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = {
        name: {what: values.tolist() for what, values in one.items()} for name, one in found.items()
    }
    settings = {name: asdict(student) for name, student in chosen.items()}
    path.write_text(json.dumps({"chosen": settings, "scores": numbers}, indent=2) + "\n")
    console.print(f"written: {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
