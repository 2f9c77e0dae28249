"""Bayesian logistic regression: effective sample sizes, and errors of the posterior's moments.

Every sampler is judged by a reference: Hamiltonian Monte Carlo with exact gradients, run until its
own error is negligible. The samplers have the paper's settings; it states no batch, no prior and no
scaling of the columns, which are ours. Besides, there is a row with the
best settings of a small search, done on one data set with seeds of its own, and carried over to
the others by a rule: the same momentum and cycles, and the lr at which the stationary
distribution of the discrete update has the same excess of variance along the steepest direction.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from csgmcmc.schedules import Cyclical, Decreasing, Keep, Schedule
from paper.arguments import check_choice, check_count
from paper.data.uci import TWO_CLASS_NAMES, two_classes, with_intercept
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.logistic_runs import Settings, lr_with_excess, reference, sample, score
from paper.targets import LogisticRegression

# The paper's alpha_0 * N, and a * N, which are the same numbers. It has no breast cancer data:
# they get the settings of Heart, untuned.
PAPER_LRS = {
    "SGLD": {"australian": 1.2, "german": 0.5, "heart": 1.5, "breast cancer": 1.5},
    "SGHMC": {"australian": 0.5, "german": 0.3, "heart": 1.0, "breast cancer": 1.0},
}
PAPER_MOMENTUMS = {"SGLD": 0.0, "SGHMC": 0.5}
SEARCH_SEED = 1000
"""First seed of the search: none of those that are reported."""

Choice = dict[str, Any]
"""What a search chooses: momentum, cycles, and the excess of variance that sets lr."""
Jobs = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class LogisticConfig(Config):
    """The paper's settings, the reference's, and the grid of the search."""

    seeds: int = 20
    datasets: tuple[str, ...] = TWO_CLASS_NAMES
    batches: tuple[int | None, ...] = (32, None)
    """Sizes; None takes all data in each step."""
    steps: int = 10_000
    burn_in: int = 5_000
    cycles: int = 100
    exploration: float = 0.01
    gamma: float = 0.55
    reference_chains: int = 256
    reference_warm_up: int = 200
    reference_draws: int = 2_000
    search_on: str = "australian"
    search_seeds: int = 5
    search_momentums: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95)
    search_cycles: tuple[int, ...] = (100, 20, 10)
    search_excesses: tuple[float, ...] = (0.3, 1.0)
    search_sd_tolerance: float = 0.1
    """By what share the median sd may be too large or too small."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("search_seeds", self.search_seeds, at_least=1)
        check_choice("search_on", self.search_on, self.datasets)

    @property
    def choices(self) -> Iterator[Choice]:
        """The grid of the search."""
        grid = product(self.search_momentums, self.search_cycles, self.search_excesses)
        for momentum, cycles, excess in grid:
            yield {"momentum": momentum, "cycles": cycles, "excess": excess}

    def schedule(self, settings: Settings) -> Schedule:
        """Every step after the burn-in is a draw, if it is not one of exploration."""
        if settings.cycles is None:
            return Decreasing(
                self.steps, gamma=self.gamma, burn_in=self.burn_in, keep=Keep(every=1)
            )
        return Cyclical(
            self.steps,
            cycles=settings.cycles,
            exploration=self.exploration,
            burn_in=self.burn_in,
            keep=Keep(every=1),
        )


@dataclass(frozen=True)
class Row:
    """One sampler on one data set, with the mean and sd to judge it by."""

    method: str
    settings: Settings
    seeds: Sequence[int]
    mean: Sequence[float]
    sd: Sequence[float]
    choice: Choice | None = None


class Logistic(Experiment[LogisticConfig]):
    """References first, then the paper's rows and the search, then the rows of its best choice."""

    name = "logistic"
    summary = "Table of effective sample sizes: Bayesian logistic regression, and its moments"
    presets: Mapping[str, LogisticConfig] = {
        "paper": LogisticConfig(),
        "laptop": LogisticConfig(seeds=5, reference_draws=500, search_seeds=2),
        "smoke": LogisticConfig(
            seeds=2,
            datasets=("breast cancer",),
            steps=400,
            burn_in=200,
            cycles=4,
            reference_chains=64,
            reference_warm_up=50,
            reference_draws=200,
            search_on="breast cancer",
            search_seeds=1,
            search_momentums=(0.9,),
            search_cycles=(4,),
        ),
    }

    def jobs(self, config: LogisticConfig, done: Mapping[str, Record]) -> Jobs:
        jobs: Jobs = {reference_key(name): {"dataset": name} for name in config.datasets}
        if not jobs.keys() <= done.keys():
            return jobs
        jobs |= paper_jobs(config, done)
        for batch in config.batches:
            trials = search_jobs(config, done, batch)
            jobs |= trials
            if trials.keys() <= done.keys():
                found = [done[key] for key in trials]
                choice = best_choice(found, config.search_sd_tolerance)
                jobs |= best_jobs(config, done, batch, choice)
        return jobs

    def run(self, config: LogisticConfig, data: Path | None, **options: Any) -> Record:
        dataset: str = options["dataset"]
        row: Row | None = options.get("row")
        features, labels = two_classes(dataset, data)
        target = LogisticRegression(with_intercept(features), labels)
        if row is None:
            found = reference(
                target,
                chains=config.reference_chains,
                warm_up=config.reference_warm_up,
                draws=config.reference_draws,
            )
            return {"dataset": dataset, "method": "reference", **found}
        schedule = config.schedule(row.settings)
        runs = sample(target, row.settings, schedule, row.seeds)
        return {
            "dataset": dataset,
            "method": row.method,
            **asdict(row.settings),
            "choice": row.choice,
            "draws": schedule.total_draws,
            **score(runs, np.array(row.mean), np.array(row.sd)),
        }


def paper_jobs(config: LogisticConfig, done: Mapping[str, Record]) -> Jobs:
    """The paper's four methods with its own settings."""
    jobs: Jobs = {}
    cyclical = {"": None, "c": config.cycles}
    for dataset, batch in product(config.datasets, config.batches):
        for sampler, prefix in product(PAPER_LRS, cyclical):
            settings = Settings(
                PAPER_LRS[sampler][dataset], PAPER_MOMENTUMS[sampler], cyclical[prefix], batch
            )
            method = prefix + sampler
            row = _row(done, dataset, method, settings, range(config.seeds))
            jobs[job_key(dataset, method, batch)] = {"dataset": dataset, "row": row}
    return jobs


def search_jobs(config: LogisticConfig, done: Mapping[str, Record], batch: int | None) -> Jobs:
    """A trial for every choice of the grid, on one data set."""
    jobs: Jobs = {}
    seeds = range(SEARCH_SEED, SEARCH_SEED + config.search_seeds)
    for choice in config.choices:
        settings = carried_over(choice, done[reference_key(config.search_on)], batch)
        row = _row(done, config.search_on, "trial", settings, seeds, choice)
        key = f"{job_key(config.search_on, 'trial', batch)}, " + ", ".join(
            f"{name} {value:g}" for name, value in choice.items()
        )
        jobs[key] = {"dataset": config.search_on, "row": row}
    return jobs


def best_jobs(
    config: LogisticConfig, done: Mapping[str, Record], batch: int | None, choice: Choice
) -> Jobs:
    """What a search has chosen, on all data sets."""
    jobs: Jobs = {}
    for dataset in config.datasets:
        settings = carried_over(choice, done[reference_key(dataset)], batch)
        row = _row(done, dataset, "best", settings, range(config.seeds), choice)
        jobs[job_key(dataset, "best", batch)] = {"dataset": dataset, "row": row}
    return jobs


def best_choice(trials: Sequence[Record], sd_tolerance: float) -> Choice:
    """The choice with most effective draws among those whose median sd is about right.

    Where none is, the one that comes nearest.
    """

    def error(trial: Record) -> float:
        return abs(math.log(trial["pooled"]["sd_ratio"]))

    right = [trial for trial in trials if error(trial) <= math.log1p(sd_tolerance)]
    if not right:
        return min(trials, key=error)["choice"]
    return max(right, key=lambda trial: np.mean(trial["ess_truncated"]))["choice"]


def carried_over(choice: Choice, found: Record, batch: int | None) -> Settings:
    """A choice as the settings on the data whose reference is `found`."""
    lr = lr_with_excess(
        choice["excess"], choice["momentum"], found["largest_curvature"], found["num_data"], batch
    )
    return Settings(lr, choice["momentum"], choice["cycles"], batch)


def job_key(dataset: str, method: str, batch: int | None) -> str:
    return f"{dataset}, {method}, {f'batch {batch}' if batch else 'full batch'}"


def reference_key(dataset: str) -> str:
    return f"{dataset}, reference"


def _row(
    done: Mapping[str, Record],
    dataset: str,
    method: str,
    settings: Settings,
    seeds: Sequence[int],
    choice: Choice | None = None,
) -> Row:
    found = done[reference_key(dataset)]
    return Row(method, settings, seeds, found["mean"], found["sd"], choice)
