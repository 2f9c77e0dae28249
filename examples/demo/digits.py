"""Digits: SGDM, Snapshot and cSGHMC with equal numbers of steps.

The network is narrow on purpose, and trained on few digits: what a single one learns then depends
much on its start, and there is something to average. With two layers of 100, which was tried
first, there is less: SGDM and Snapshot were ahead in NLL on the test data, and cSGHMC only in
telling letters from digits.

Every method has the same network, data and number of steps; a seed has its own training digits,
initial weights, order of batches and noise. All seeds of a method run as one stack of chains.
Learning rates, weight decays, and the temperature of cSGHMC, minimise the negative
log-likelihood on validation data, with other seeds than those of the table, see
`benchmarks/demo_settings.py`. Test data and letters are used for the scores only.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from csgmcmc import stack
from csgmcmc.diagnostics import accuracy, auroc, calibration_error, negative_log_likelihood
from csgmcmc.loop import Chain, StepInfo
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import SGHMC
from csgmcmc.schedules import Cyclical, Schedule
from paper.data import Digits, load_digits, load_letters

TRAINING_DIGITS = 200
WIDTH = 30
BATCH = 50
MOMENTUM = 0.9


@dataclass(frozen=True)
class Method:
    """A row of the table: settings of SGHMC (SGDM at temperature 0), and of its schedule."""

    name: str
    lr: float
    weight_decay: float
    temperature: float
    cycles: int
    draws_per_cycle: int


METHODS = (
    Method("SGDM", 0.15, 3e-3, 0.0, cycles=1, draws_per_cycle=1),
    Method("Snapshot", 0.15, 3e-3, 0.0, cycles=4, draws_per_cycle=1),
    Method("cSGHMC", 0.2, 3e-3, 0.03, cycles=4, draws_per_cycle=25),
)


@dataclass(frozen=True)
class DigitsDemo:
    """Length and seeds of the demo."""

    steps: int = 2000
    first_seed: int = 0
    seeds: int = 30
    exploration: float = 0.2

    def __post_init__(self) -> None:
        for method in METHODS:
            self.schedule(method)  # raises if there are too few steps

    @property
    def seed_numbers(self) -> range:
        """The seeds to run."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @cached_property
    def data(self) -> Digits:
        """The digits, read once."""
        return load_digits()

    def schedule(self, method: Method) -> Schedule:
        """The schedule of a method."""
        return Cyclical(
            self.steps,
            cycles=method.cycles,
            exploration=self.exploration,
            draws_per_cycle=method.draws_per_cycle,
        )


@dataclass(frozen=True)
class DigitsScore:
    """Test scores of one method and seed."""

    method: str
    seed: int
    networks: int
    error: float
    nll: float
    calibration_error: float
    auroc: float


class BatchesOfSeeds:
    """Minibatches for a stack: those of the first seed, then those of the second, and so on."""

    draws_globally = False  # the order is from its own generators

    def __init__(self, images: Tensor, labels: Tensor, seeds: range) -> None:
        self.images, self.labels = images, labels
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.rows = [
            torch.randperm(len(images), generator=each)[:TRAINING_DIGITS]
            for each in self.generators
        ]

    def __len__(self) -> int:
        return TRAINING_DIGITS // BATCH

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        orders = [
            rows[torch.randperm(len(rows), generator=each)]
            for rows, each in zip(self.rows, self.generators, strict=True)
        ]
        for batch in torch.stack(orders).split(BATCH, dim=1):
            rows = batch.flatten()
            yield self.images[rows], self.labels[rows]


def make_model(seed: int) -> nn.Sequential:
    """A network with the initial weights of `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 10),
        )


def make_chain(demo: DigitsDemo, method: Method, **options: Any) -> Chain:
    """All seeds of one method, as a stack; `options` are further arguments of `Chain`."""
    model = stack([make_model(seed) for seed in demo.seed_numbers], separate_batches=True)
    sampler = SGHMC(
        model.parameters(),
        method.lr,
        momentum=MOMENTUM,
        num_data=TRAINING_DIGITS,
        temperature=method.temperature,
        weight_decay=method.weight_decay,
        seed=0,
        chain_id=demo.first_seed,  # the noise of a seed does not depend on other seeds
    )
    images, labels = demo.data.train.tensors
    data = BatchesOfSeeds(images, labels, demo.seed_numbers)
    schedule = demo.schedule(method)
    quiet = {"watch": False, "progress": False}  # the search tries step sizes that are too large
    return Chain(model, cross_entropy, data, sampler, schedule, **quiet, **options)


def sample(
    demo: DigitsDemo, method: Method, on_progress: Callable[[int], None] | None = None
) -> list[Posterior]:
    """Run one method, and return the posterior of each seed."""

    def report(moment: StepInfo) -> None:
        if on_progress and (moment.tick.step + 1) % 100 == 0:
            on_progress(moment.tick.step + 1)

    draws = make_chain(demo, method, callbacks=report).run()
    model = make_model(demo.first_seed)  # only its architecture matters
    return [Posterior(model, draws.of_chain(s), progress=False) for s in demo.seed_numbers]


def score(demo: DigitsDemo, method: Method, seed: int, posterior: Posterior) -> DigitsScore:
    """Score the posterior predictive on the test data, and its entropy on letters."""
    tested = predict(posterior, demo.data.test)
    outside = posterior.predict(load_letters())
    probabilities, labels = tested.probs_numpy(), tested.labels_numpy()
    return DigitsScore(
        method=method.name,
        seed=seed,
        networks=len(posterior.draws),
        error=1 - accuracy(probabilities, labels),
        nll=negative_log_likelihood(probabilities, labels),
        calibration_error=calibration_error(probabilities, labels),
        auroc=auroc(tested.entropy.numpy(), outside.entropy.numpy()),
    )


def predict(posterior: Posterior, data: Dataset) -> ClassPredictive:
    """The averaged prediction for all of `data`."""
    predictive = posterior.predict_loader(DataLoader(data, batch_size=500))
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (digits are classes)
    return predictive
