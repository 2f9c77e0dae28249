"""What all experiments on networks share: the search for step sizes, and kinds of jobs.

The jobs of a setting come in three waves: the search for step sizes on validation data; the chains;
and what is made of several chains. One setting follows another. A search that is done is kept
beside the draws, so that an experiment finds what another one has searched for.
"""

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from csgmcmc.draws import Draw
from csgmcmc.errors import DivergedError
from paper.data import check_complete
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.deep_runs import (
    Source,
    choose_by,
    folder_of,
    load,
    predict,
    sample,
    training_fit,
)
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import Run, scores


@dataclass(frozen=True)
class DeepConfig(Config):
    """Settings of an experiment on networks: those of each data set that it is run on."""

    settings: tuple[Setting, ...] = ()

    def seeds_of(self, setting: Setting) -> range:
        """The seeds to run in a setting."""
        return range(min(self.seeds, setting.seeds))


C = TypeVar("C", bound=DeepConfig)
Chains = Mapping[str, Run]
Groups = Mapping[str, Mapping[str, Any]]
"""What is made of several chains, by key: `runs`, and whatever else the record shall hold."""


class DeepExperiment(Experiment[C]):
    """An experiment whose jobs are searches, chains, and groups of chains."""

    keeps_draws = True
    methods: tuple[str, ...]
    """Those that are run."""

    @abstractmethod
    def chains(self, config: C, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        """The chains of one setting, by key."""

    def groups(self, config: C, setting: Setting, lrs: Mapping[str, float]) -> Groups:
        """What is made of the chains of one setting."""
        return {}

    def jobs(self, config: C, done: Mapping[str, Record]) -> Mapping[str, Mapping[str, Any]]:
        """Those of the first settings, up to one that is not done: its records decide the next."""
        jobs: dict[str, Mapping[str, Any]] = {}
        for setting in config.settings:
            for wave in self.waves(config, setting, done):
                jobs.update(wave)
                if not all(key in done for key in wave):
                    return jobs
        return jobs

    def waves(
        self, config: C, setting: Setting, done: Mapping[str, Record]
    ) -> Iterator[Mapping[str, Mapping[str, Any]]]:
        """The search, the chains and the groups of a setting; each needs those before it."""
        searches = {
            f"{setting.name}, {run.method}, search, step size {run.lr:g}": {
                "part": "search",
                "setting": setting,
                "run": run,
            }
            for run in _searches(setting, self.methods)
        }
        yield searches
        lrs = _chosen(setting, self.methods, [done[key] for key in searches])
        yield {
            f"{setting.name}, {key}": {"part": "chain", "setting": setting, "run": run}
            for key, run in self.chains(config, setting, lrs).items()
        }
        yield {
            f"{setting.name}, {key}": {"part": "group", "setting": setting, **group}
            for key, group in self.groups(config, setting, lrs).items()
        }

    def check_data(self, config: C, data: Path | None) -> None:
        for setting in config.settings:
            source = load(replace(setting, train=None, test=None), data)
            check_complete(setting.source, len(source.train), len(source.test))

    def run(self, config: C, data: Path | None, **options: Any) -> Record:
        part, setting = options.pop("part"), options.pop("setting")
        draws: Path = options.pop("draws")
        source = load(setting, data)
        about = {"part": part, "setting": setting.name, "source": source.name}
        if part == "group":
            return {**about, **self.combine(setting, source, draws, data, **options)}
        run: Run = options["run"]
        about = {**about, **asdict(run)}
        if part == "search":
            return {**about, **_searched(setting, source, draws, run)}
        try:
            found = self.sample(run, setting, source, draws)
        except DivergedError:
            return {**about, "scores": None}
        return {**about, **self.score(setting, source, found, data)}

    def sample(self, run: Run, setting: Setting, source: Source, draws: Path) -> Sequence[Draw]:
        """The draws of a chain."""
        return sample(run, setting.network, source, draws)

    def score(
        self, setting: Setting, source: Source, draws: Sequence[Draw], data: Path | None
    ) -> Record:
        """What a record holds of the draws of one chain; `data` is the folder of the data sets."""
        network = setting.network
        found = {
            "scores": scores(predict(network, source, draws, source.test)),
            "train": training_fit(network, source, draws),
        }
        if len(source.later):
            found["validation"] = scores(predict(network, source, draws, source.later))
        return found

    def combine(
        self,
        setting: Setting,
        source: Source,
        draws: Path,
        data: Path | None,
        *,
        runs: Any,
        **about: Any,
    ) -> Record:
        """What is made of the chains `runs`: the average over all their draws, equally weighed."""
        about = {**about, "chains": len(runs)}
        try:
            found = [draw for run in runs for draw in self.sample(run, setting, source, draws)]
        except DivergedError:
            return {**about, "scores": None}
        return {**about, "scores": scores(predict(setting.network, source, found, source.test))}


def _searches(setting: Setting, methods: tuple[str, ...]) -> Iterator[Run]:
    for method in dict.fromkeys(map(setting.searched_as, methods)):
        yield from setting.searches(method)


def _searched(setting: Setting, source: Source, draws: Path, run: Run) -> Record:
    """What a step size is judged by, kept in a file beside the draws; no NLL if it diverges."""
    path = folder_of(draws, setting.network, source, run).with_suffix(".search.json")
    if path.exists():
        return json.loads(path.read_text())
    try:
        # A run on all of the training data may be a row of a table: its draws are kept.
        found = choose_by(run, setting.network, source, None if run.held_out else draws)
    except DivergedError:
        found = {"validation_nll": None, "train_error": None}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(found))
    fresh.replace(path)
    return found


def _chosen(setting: Setting, methods: tuple[str, ...], found: list[Record]) -> Mapping[str, float]:
    """The step size of each method: the setting's, or that of the lowest NLL on validation data.

    Only step sizes with which the network fits its training data are compared.
    """
    if not setting.searched:
        return setting.lrs
    chosen = {}
    for method in methods:
        tried = {
            record["lr"]: record["validation_nll"]
            for record in found
            if record["method"] == setting.searched_as(method)
            and record["setting"] == setting.name
            and record["validation_nll"] is not None
            and record.get("train_error", 0.0) <= setting.search_fit
        }
        if not tried:
            raise ValueError(
                f"{method} diverged, or did not fit its training data, at every step size of the "
                "search"
            )
        chosen[method] = min(tried, key=lambda lr, tried=tried: tried[lr])
    return chosen
