"""What all experiments on CIFAR share: settings, the search for step sizes, and kinds of jobs.

Jobs come in three waves: the search for step sizes on held-out training data; the chains; and what
is made of several chains. A search that is done is kept beside the draws, so that an experiment
finds what another one has searched for.
"""

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from csgmcmc.errors import DivergedError
from paper.arguments import check_choice
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.cifar_runs import (
    Source,
    folder_of,
    load,
    predict,
    sample,
    validation_nll,
)
from paper.experiments.methods import ResidualNetwork, Run, rounded, scores


@dataclass(frozen=True)
class Setting:
    """A data set, what is trained on it, and for how long.

    Args:
        source: "cifar10" or "cifar100".
        network: what is trained.
        epochs: of every method.
        seeds: at most so many of the experiment's.
        cycles: M.
        exploration: beta.
        draws_per_cycle: of cSGLD and cSGHMC; Snapshot keeps one a cycle.
        draws: of SGLD and SGHMC.
        lrs: step sizes by method, where none are searched for.
        searched: step sizes that are tried; `searched_sgdm` those of SGDM, whose momentum makes
            steps ten times as long.
        search_epochs: of the search, as long as a cycle.
        held_out: training data that the search is judged by.
        train: use the first of the training data only; `test` the same of the test data.
    """

    source: str
    network: ResidualNetwork
    epochs: int
    seeds: int = 3
    cycles: int = 4
    exploration: float = 0.8
    draws_per_cycle: int = 3
    draws: int = 20
    lrs: Mapping[str, float] = field(default_factory=dict)
    searched: tuple[float, ...] = ()
    searched_sgdm: tuple[float, ...] = ()
    search_epochs: int = 0
    held_out: int = 0
    train: int | None = None
    test: int | None = None

    def __post_init__(self) -> None:
        check_choice("source", self.source, ("cifar10", "cifar100"))

    def run(self, method: str, lr: float, seed: int, **changes: Any) -> Run:
        """A chain of a method with these settings, except for `changes`."""
        run = Run.of(
            method,
            lr,
            seed,
            epochs=self.epochs,
            exploration=self.exploration,
            cycles=self.cycles,
            draws_per_cycle=self.draws_per_cycle,
            draws=self.draws,
        )
        return replace(run, **changes)

    def searches(self, method: str) -> Iterator[Run]:
        """One run for each step size: as long as a cycle, on training data alone."""
        for lr in self.searched_sgdm if method == "SGDM" else self.searched:
            yield self.run(
                method, lr, seed=0, epochs=self.search_epochs, cycles=1, held_out=self.held_out
            )


PAPER_LRS = {
    **dict.fromkeys(("Snapshot-SGD", "Snapshot-SGDM", "cSGLD", "cSGHMC"), 0.5),
    **dict.fromkeys(("SGD", "SGDM", "SGLD", "SGHMC"), 0.1),
}
RESNET18 = ResidualNetwork("resnet18", width=64, batch=64)
LAPTOP = ResidualNetwork("resnet8", width=8, batch=64)
TINY = ResidualNetwork("resnet8", width=8, batch=10)


def _paper(source: str, exploration: float) -> Setting:
    return Setting(source, RESNET18, epochs=200, exploration=exploration, lrs=PAPER_LRS)


def _laptop(source: str, exploration: float, seeds: int) -> Setting:
    return Setting(
        source,
        LAPTOP,
        epochs=12,
        seeds=seeds,
        exploration=exploration,
        searched=(0.4, 0.8, 1.6, 3.2),
        searched_sgdm=(0.04, 0.08, 0.16, 0.32),
        search_epochs=3,
        held_out=2000,
    )


def _smoke(source: str, seeds: int) -> Setting:
    return Setting(
        source,
        TINY,
        epochs=10,
        seeds=seeds,
        draws_per_cycle=2,
        draws=3,
        exploration=0.6,
        searched=(0.1, 0.3),
        searched_sgdm=(0.01, 0.03),
        search_epochs=3,
        held_out=10,
        train=60,
        test=50,
    )


PAPER = {"cifar10": _paper("cifar10", 0.8), "cifar100": _paper("cifar100", 0.94)}
LAPTOPS = {"cifar10": _laptop("cifar10", 0.8, 3), "cifar100": _laptop("cifar100", 0.94, 1)}
SMOKE = {"cifar10": _smoke("cifar10", 2), "cifar100": _smoke("cifar100", 1)}


@dataclass(frozen=True)
class CifarConfig(Config):
    """Settings of an experiment on CIFAR: those of each data set that it is run on."""

    settings: tuple[Setting, ...] = ()

    def seeds_of(self, setting: Setting) -> range:
        """The seeds to run on a data set."""
        return range(min(self.seeds, setting.seeds))


C = TypeVar("C", bound=CifarConfig)
Chains = Mapping[str, Run]
Groups = Mapping[str, Mapping[str, Any]]
"""What is made of several chains, by key: `runs`, and whatever else the record shall hold."""


class CifarExperiment(Experiment[C]):
    """An experiment whose jobs are searches, chains, and groups of chains."""

    keeps_draws = True
    methods: tuple[str, ...]
    """Those whose step size is searched for."""

    @abstractmethod
    def chains(self, config: C, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        """The chains on one data set, by key."""

    @abstractmethod
    def groups(self, config: C, setting: Setting, lrs: Mapping[str, float]) -> Groups:
        """What is made of the chains of one data set."""

    def jobs(self, config: C, done: Mapping[str, Record]) -> Mapping[str, Mapping[str, Any]]:
        jobs: dict[str, Mapping[str, Any]] = {}
        for setting in config.settings:
            for method in self.methods:
                for run in setting.searches(method):
                    key = f"{setting.source}, {method}, search, step size {run.lr:g}"
                    jobs[key] = {"part": "search", "setting": setting, "run": run}
        if not all(key in done for key in jobs):
            return jobs
        found = {
            setting.source: _chosen(setting, self.methods, [done[key] for key in jobs])
            for setting in config.settings
        }
        for setting in config.settings:
            for key, run in self.chains(config, setting, found[setting.source]).items():
                jobs[f"{setting.source}, {key}"] = {"part": "chain", "setting": setting, "run": run}
        if not all(key in done for key in jobs):
            return jobs
        for setting in config.settings:
            for key, group in self.groups(config, setting, found[setting.source]).items():
                jobs[f"{setting.source}, {key}"] = {"part": "group", "setting": setting, **group}
        return jobs

    def run(self, config: C, data: Path | None, **options: Any) -> Record:
        part, setting = options.pop("part"), options.pop("setting")
        draws: Path = options.pop("draws")
        source = load(setting.source, data, setting.train, setting.test)
        if part == "group":
            return {"part": part, **self.combine(setting, source, draws, **options)}
        run: Run = options["run"]
        about = {"part": part, "source": source.name, **asdict(run)}
        if part == "search":
            return {**about, "validation_nll": _searched(setting, source, draws, run)}
        try:
            found = sample(run, setting.network, source, draws)
        except DivergedError:
            return {**about, "scores": None}
        return {**about, "scores": scores(predict(setting.network, source, found, source.test))}

    def combine(
        self, setting: Setting, source: Source, draws: Path, runs: list[Run], **about: Any
    ) -> Record:
        """The average over the draws of several chains, each with the same weight."""
        about = {"source": source.name, **about, "chains": len(runs)}
        try:
            found = [draw for run in runs for draw in sample(run, setting.network, source, draws)]
        except DivergedError:
            return {**about, "scores": None}
        return {**about, "scores": scores(predict(setting.network, source, found, source.test))}


def _searched(setting: Setting, source: Source, draws: Path, run: Run) -> float | None:
    """NLL on held-out data, kept in a file beside the draws; None if the run diverges."""
    path = folder_of(draws, setting.network, source, run).with_suffix(".search.json")
    if path.exists():
        return json.loads(path.read_text())
    try:
        found = validation_nll(run, setting.network, source)
    except DivergedError:
        found = math.inf
    nll = rounded(found) if math.isfinite(found) else None
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(nll))
    fresh.replace(path)
    return nll


def _chosen(setting: Setting, methods: tuple[str, ...], found: list[Record]) -> Mapping[str, float]:
    """The step size of each method: the paper's, or that of the lowest NLL on held-out data."""
    if not setting.searched:
        return setting.lrs
    chosen = {}
    for method in methods:
        losses = {
            record["lr"]: record["validation_nll"]
            for record in found
            if record["method"] == method
            and record["source"] == setting.source
            and record["validation_nll"] is not None
        }
        if not losses:
            raise ValueError(f"{method} diverged at every step size of the search")
        chosen[method] = min(losses, key=lambda lr: losses[lr])
    return chosen
