"""Digits: SGDM, Snapshot, cSGLD and cSGHMC with equal numbers of epochs.

Every method has the same network, data and number of steps. Learning rates, and the temperatures of
the samplers, minimise the negative log-likelihood on validation data, see
`benchmarks/demo_settings.py`. Test data and letters are used for the scores only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from csgmcmc.arguments import check_count
from csgmcmc.chain import Chain, StepInfo
from csgmcmc.demo.data import Digits, load_digits, load_letters
from csgmcmc.diagnostics import accuracy, auroc, calibration_error, negative_log_likelihood
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import SGHMC, SGLD
from csgmcmc.schedules import Cyclical, Schedule

WEIGHT_DECAY = 1e-4
MOMENTUM = 0.9
BATCH = 50


@dataclass(frozen=True)
class Method:
    """A row of the table: a sampler and its schedule."""

    name: str
    sampler: type[SGLD] | type[SGHMC]
    lr: float
    temperature: float
    cycles: int
    draws_per_cycle: int


METHODS = (
    Method("SGDM", SGHMC, lr=0.2, temperature=0.0, cycles=1, draws_per_cycle=1),
    Method("Snapshot", SGHMC, lr=0.2, temperature=0.0, cycles=4, draws_per_cycle=1),
    Method("cSGLD", SGLD, lr=0.5, temperature=0.3, cycles=4, draws_per_cycle=10),
    Method("cSGHMC", SGHMC, lr=0.2, temperature=0.1, cycles=4, draws_per_cycle=10),
)


@dataclass(frozen=True)
class DigitsDemo:
    """Length and seeds of the demo."""

    steps: int = 4000
    first_seed: int = 0
    seeds: int = 1
    exploration: float = 0.5

    def __post_init__(self) -> None:
        check_count("steps", self.steps, at_least=1)
        check_count("seed", self.first_seed, at_least=0)
        check_count("seeds", self.seeds, at_least=1)
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


def make_model(seed: int) -> nn.Sequential:
    """A network with the initial weights of `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 100),
            nn.ReLU(),
            nn.Linear(100, 100),
            nn.ReLU(),
            nn.Linear(100, 10),
        )


def make_chain(demo: DigitsDemo, method: Method, seed: int, **options: Any) -> Chain:
    """The chain of one method; `options` are further arguments of `Chain`."""
    model = make_model(seed)
    train = demo.data.train
    own: dict[str, Any] = {"momentum": MOMENTUM} if method.sampler is SGHMC else {}
    sampler = method.sampler(
        model.parameters(),
        method.lr,
        num_data=len(train),
        temperature=method.temperature,
        weight_decay=WEIGHT_DECAY,
        seed=seed,
        **own,
    )
    order = torch.Generator().manual_seed(seed)
    loader = DataLoader(train, BATCH, shuffle=True, drop_last=True, generator=order)
    schedule = demo.schedule(method)
    quiet = {"watch": False, "progress": False}  # the search tries step sizes that are too large
    return Chain(model, cross_entropy, loader, sampler, schedule, **quiet, **options)


def sample(
    demo: DigitsDemo,
    method: Method,
    seed: int,
    on_progress: Callable[[int], None] | None = None,
) -> Posterior:
    """Run one method, and return the posterior of its draws."""

    def report(moment: StepInfo) -> None:
        if on_progress and (moment.tick.step + 1) % 100 == 0:
            on_progress(moment.tick.step + 1)

    chain = make_chain(demo, method, seed, callbacks=report)
    return Posterior(chain.model, chain.run(), progress=False)


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
    predictive = posterior.predict_loader(DataLoader(data, batch_size=500))
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (digits are classes)
    return predictive
