"""Uncertainty: entropy of eight methods' predictions on classes that they have never seen.

The paper's figure of entropy on notMNIST. Every method has the same network, data and epochs, and
one seed gives all of them the same starting weights and batches. Where the paper leaves a choice:

- The network has layers of 784, 400, 400 and 10: the paper says "three-layer MLP", and no script of
  this experiment is published. The number of epochs and of draws per cycle are ours, too.
- N = 60,000, all of MNIST's training data, pixels standardised by their mean and sd; batch 64 and
  weight decay 5e-4 as in the published CIFAR scripts.
- SGLD and SGHMC: "the first 50 iterations" are epochs, and the decay a * k^-0.5005 after them
  counts k in epochs. In steps, all 56 epochs would add up to half an epoch at the full step size.
  The burn-in has no noise, like the exploration of the cyclical methods.
- SGD and SGDM keep the step size constant, and are the last weights.
- The samplers' temperature is 1/N as in the published CIFAR scripts; 1 is the posterior, and 0.0045
  what the paper says.
- As 0.01 is far below what one would choose, every method is also run with the step size of the
  lowest NLL on the last 10,000 training points, found by a search that has the others alone. Those
  runs are on all training data, and shorter: with larger steps they converge sooner.

Nothing is chosen by test data or notMNIST. `uncertainty-digits` is the same on small digits and
rendered letters, which need no download.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from csgmcmc.samplers import SGHMC, SGLD
from paper.arguments import check_choice
from paper.data import check_complete, load_digits, load_letters, mnist, not_mnist
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.methods import (
    COLD,
    METHODS,
    ONE_OVER_N,
    Method,
    Perceptron,
    rounded,
)
from paper.experiments.uncertainty_methods import (
    ENTROPY_GRID,
    LOW_ENTROPIES,
    Plan,
    Points,
    scores,
    shared_start,
    validation_nll,
)

THREE_LAYERS = Perceptron((784, 400, 400, 10), batch=64)
PLAN = Plan(epochs=56, burn_in=50)
SEARCH_PLAN, TUNED_PLAN = Plan(epochs=6, burn_in=4), Plan(epochs=12, burn_in=9)
SMALL = Perceptron((64, 100, 100, 10), batch=50)


@dataclass(frozen=True)
class UncertaintyConfig(Config):
    """Settings of `uncertainty`.

    `temperatures` are those of the samplers besides 1/N, for the first `temperature_seeds`.
    """

    source: str = "mnist"
    network: Perceptron = THREE_LAYERS
    lr_sgld: float = 0.01
    lr_sghmc: float = 0.008
    plan: Plan = PLAN
    temperatures: tuple[float, ...] = (1.0, 0.0045)
    temperature_seeds: int = 3
    searched_sgld: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)
    searched_sghmc: tuple[float, ...] = (0.025, 0.05, 0.1, 0.2, 0.4)
    search_plan: Plan = SEARCH_PLAN
    tuned_plan: Plan = TUNED_PLAN

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("source", self.source, ("mnist", "digits"))


class Source(NamedTuple):
    """Data to train on, the last `validation` of them to choose step sizes by, and to test with."""

    train: Points
    validation: int
    test: Points
    outside: Tensor


class Uncertainty(Experiment[UncertaintyConfig]):
    """Jobs are runs of methods that share their start, and a search for step sizes."""

    name = "uncertainty"
    summary = "entropy on notMNIST of networks trained on MNIST, eight methods"
    presets = {
        "paper": UncertaintyConfig(seeds=3),
        "laptop": UncertaintyConfig(
            plan=Plan(epochs=20, burn_in=16),
            temperature_seeds=1,
            search_plan=Plan(epochs=4, burn_in=3),
            tuned_plan=Plan(epochs=8, burn_in=6),
        ),
        "smoke": UncertaintyConfig(
            seeds=2,
            source="digits",
            network=Perceptron((64, 20, 10), batch=100),
            plan=Plan(epochs=8, burn_in=6, draws_per_cycle=2),
            temperature_seeds=1,
            searched_sgld=(0.1, 0.3),
            searched_sghmc=(0.1, 0.3),
            search_plan=Plan(epochs=4, burn_in=3, draws_per_cycle=2),
            tuned_plan=Plan(epochs=4, burn_in=3, draws_per_cycle=2),
        ),
    }

    def check_data(self, config: UncertaintyConfig, data: Path | None) -> None:
        if config.source == "mnist":
            source = load("mnist", data)
            check_complete("mnist", len(source.train.labels), len(source.test.labels))

    def jobs(
        self, config: UncertaintyConfig, done: Mapping[str, Record]
    ) -> Mapping[str, Mapping[str, Any]]:
        jobs = {
            **dict(_paper_jobs(config)),  # the longest come first
            **dict(_search_jobs(config)),
        }
        if all(key in done for key in jobs):
            found = [done[key] for key in jobs if "validation_nll" in done[key]]
            jobs.update(_tuned_jobs(config, found))
        return jobs

    def run(self, config: UncertaintyConfig, data: Path | None, **options: Any) -> Record:
        source = load(config.source, data)
        if options["part"] == "search":
            return _search(config, source, options["methods"], options["lr"])
        return _score(config, source, **options)


class UncertaintyDigits(Uncertainty):
    """The same jobs on data that come with scikit-learn and matplotlib.

    An epoch has 26 steps where MNIST's has 937: there are ten times as many epochs.
    """

    name = "uncertainty-digits"
    summary = "entropy on letters of networks trained on small digits, no data needed"
    presets = {
        "paper": UncertaintyConfig(
            seeds=3,
            source="digits",
            network=SMALL,
            plan=Plan(epochs=560, burn_in=500),
            search_plan=Plan(epochs=60, burn_in=40),
            tuned_plan=Plan(epochs=120, burn_in=90),
        ),
        "laptop": UncertaintyConfig(
            source="digits",
            network=SMALL,
            plan=Plan(epochs=200, burn_in=160),
            search_plan=Plan(epochs=40, burn_in=30),
            tuned_plan=Plan(epochs=80, burn_in=60),
        ),
        "smoke": Uncertainty.presets["smoke"],
    }


def _pairs() -> Iterator[list[Method]]:
    """Methods that share their start, the longer runs first."""
    for cyclical in (True, False):
        for sampler in (SGLD, SGHMC):
            yield [m for m in METHODS if m.cyclical == cyclical and m.sampler is sampler]


def _paper_jobs(config: UncertaintyConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    for seed in range(config.seeds):
        further = config.temperatures if seed < config.temperature_seeds else ()
        hot = [ONE_OVER_N, *(f"{temperature:g}" for temperature in further)]
        for methods in _pairs():
            lr = config.lr_sgld if methods[0].sampler is SGLD else config.lr_sghmc
            runs = [(m.name, label) for m in methods for label in (hot if m.hot else [COLD])]
            yield (
                f"{_names(methods)}, paper's step size, seed {seed}",
                {"part": "paper", "runs": runs, "lr": lr, "seed": seed},
            )


def _search_jobs(config: UncertaintyConfig) -> Iterator[tuple[str, dict[str, Any]]]:
    for methods in _pairs():
        of_sgld = methods[0].sampler is SGLD
        for lr in config.searched_sgld if of_sgld else config.searched_sghmc:
            names = [method.name for method in methods]
            key = f"{_names(methods)}, search, step size {lr:g}"
            yield key, {"part": "search", "methods": names, "lr": lr}


def _tuned_jobs(
    config: UncertaintyConfig, found: list[Record]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for method in sorted(METHODS, key=lambda method: not method.hot):  # noise takes longer
        losses = {
            record["lr"]: record["validation_nll"][method.name]
            for record in found
            if record["validation_nll"].get(method.name) is not None
        }
        if not losses:
            raise ValueError(f"{method.name} diverged at every step size of the search")
        lr = min(losses, key=lambda lr: losses[lr])
        runs = [(method.name, ONE_OVER_N if method.hot else COLD)]
        for seed in range(config.seeds):
            yield (
                f"{method.name}, tuned step size, seed {seed}",
                {"part": "tuned", "runs": runs, "lr": lr, "seed": seed},
            )


def _score(
    config: UncertaintyConfig,
    source: Source,
    part: str,
    runs: list[tuple[str, str]],
    lr: float,
    seed: int,
) -> Record:
    plan = config.plan if part == "paper" else config.tuned_plan
    rows = []
    running = " and ".join(dict.fromkeys(name for name, _ in runs))
    try:
        fork = shared_start(plan.run(runs[0][0], lr, seed), config.network, source.train)
        for running, label in runs:
            outcome = fork.finish(plan.run(running, lr, seed, temperature=label))
            rows.append(scores(outcome, source.test, source.outside))
    except FloatingPointError as error:
        raise ValueError(
            f"{running} diverged with step size {lr:g} and seed {seed}: {error}"
        ) from error
    return {
        "part": part,
        "lr": lr,
        "seed": seed,
        "rows": rows,
        "low_entropies": list(LOW_ENTROPIES),
        "largest_entropy": ENTROPY_GRID[-1],
    }


def _search(config: UncertaintyConfig, source: Source, names: list[str], lr: float) -> Record:
    """NLL on validation data of each method, after training on the others; None if it diverges."""
    kept = len(source.train.images) - source.validation
    train = Points(*(part[:kept] for part in source.train))
    validation = Points(*(part[kept:] for part in source.train))
    runs = [config.search_plan.run(name, lr, seed=0) for name in names]
    found: dict[str, float | None] = dict.fromkeys(names)
    with suppress(FloatingPointError):  # of the start: they have it in common
        fork = shared_start(runs[0], config.network, train)
        for run in runs:
            with suppress(FloatingPointError):
                found[run.method] = rounded(validation_nll(fork.finish(run), validation))
    return {"part": "search", "lr": lr, "validation_nll": found}


@cache
def load(source: str, folder: Path | None) -> Source:
    """The data of `source`, standardised; kept, as one process does many jobs."""
    if source == "mnist":
        try:  # before MNIST, which would be downloaded in vain
            validation, outside = 10_000, not_mnist(folder)
        except FileNotFoundError as error:
            other = UncertaintyDigits.name
            raise FileNotFoundError(f"{error}; the experiment {other} needs no data") from error
        train, test = (Points(*part.tensors) for part in mnist(folder))
    else:
        small = load_digits()
        parts = zip(small.train.tensors, small.validation.tensors, strict=True)
        train, test = Points(*map(torch.cat, parts)), Points(*small.test.tensors)
        validation, outside = len(small.validation), load_letters()
    mean, sd = train.images.mean(), train.images.std()
    return Source(
        Points((train.images - mean) / sd, train.labels),
        validation,
        Points((test.images - mean) / sd, test.labels),
        (outside - mean) / sd,
    )


def _names(methods: list[Method]) -> str:
    return " and ".join(method.name for method in methods)
