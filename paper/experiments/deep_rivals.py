"""What people would use instead, in the settings of table 1.

At the budget of every method: one network (SGDM), MC dropout, SWAG, Laplace approximations of the
last layer and of all weights, Snapshot-SGDM, cSGHMC, and a deep ensemble of M networks that share
the budget; and beyond it, an ensemble of M networks with the budget each. Every method that has a
hyperparameter of its uncertainty gets three values of it with the first seed, of which validation
data choose; the other seeds have the chosen one. All methods try the same multiples of the step
size that the search has found.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csgmcmc.draws import Draw
from csgmcmc.errors import DivergedError
from paper.experiments.base import Record
from paper.experiments.deep_base import Chains, DeepConfig, DeepExperiment, Groups
from paper.experiments.deep_rival_runs import (
    CANDIDATES,
    LAPLACES,
    RivalRun,
    costs_of,
    predictions_of,
    scores_of,
    stored_bytes,
    trained,
    validation_nll,
)
from paper.experiments.deep_runs import Source, load, load_outside
from paper.experiments.deep_settings import Setting
from paper.experiments.deep_table import MORE, SAME, TableConfig
from paper.experiments.methods import Run


@dataclass(frozen=True)
class RivalsConfig(DeepConfig):
    """Settings of the comparison.

    Args:
        draws: those of dropout, SWAG, Laplace and cSGHMC; as many weights are collected for SWAG.
        lr_factors: of the step size of the search, which every method tries. Unlike the claims of
            the paper, this comparison does not ask that every cycle fits the training data, which
            limits the step size of table 1.
    """

    draws: int = 20
    lr_factors: tuple[float, ...] = (1.0,)


class Rivals(DeepExperiment[RivalsConfig]):
    """Chains are what is trained; a group is a method and seed, with its candidates."""

    methods = ("SGDM", "Snapshot-SGDM", "cSGHMC")

    def chains(self, config: RivalsConfig, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        chains = {}
        for seed in config.seeds_of(setting):
            for method, candidates in _runs(config, setting, lrs, seed).items():
                for value, runs in candidates.items():
                    for number, run in enumerate(runs):
                        if run not in chains.values():
                            chains[f"{method}, {value}, network {number}, seed {seed}"] = run
        return chains

    def groups(self, config: RivalsConfig, setting: Setting, lrs: Mapping[str, float]) -> Groups:
        return {
            f"{method}, seed {seed}": {
                "method": method,
                "seed": seed,
                "runs": candidates,
                "count": config.draws,
            }
            for seed in config.seeds_of(setting)
            for method, candidates in _runs(config, setting, lrs, seed).items()
        }

    def waves(
        self, config: RivalsConfig, setting: Setting, done: Mapping[str, Record]
    ) -> Iterator[Mapping[str, Mapping[str, Any]]]:
        """The first seed with all values, then the others with the values that it chooses."""
        waves = super().waves(config, setting, done)
        yield next(waves)
        chains, groups = waves
        first = {key: group for key, group in groups.items() if group["seed"] == 0}
        yield _chains_of(first, chains)
        yield first
        chosen = {done[key]["method"]: done[key]["chosen"] for key in first}
        others = {
            key: {**group, "runs": {value: group["runs"][value]}}
            for key, group in groups.items()
            if key not in first and (value := chosen[group["method"]])
        }
        yield _chains_of(others, chains)
        yield others
        yield {
            f"{setting.name}, costs": {
                "part": "costs",
                "setting": setting,
                "chosen": {
                    group["method"]: (value, group["runs"][value])
                    for group in first.values()
                    if (value := chosen[group["method"]])
                },
                "count": config.draws,
            }
        }

    def run(self, config: RivalsConfig, data: Path | None, **options: Any) -> Record:
        if options["part"] != "costs":
            return super().run(config, data, **options)
        setting, draws = options["setting"], options["draws"]
        source = load(setting, data)
        seconds = costs_of(options["chosen"], setting, source, draws, options["count"])
        return {
            "part": "costs",
            "setting": setting.name,
            "source": source.name,
            "seconds_of": seconds,
        }

    def sample(self, run: Run, setting: Setting, source: Source, draws: Path) -> Sequence[Draw]:
        return trained(run, setting.network, source, draws)

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
        """Scores of the candidate of the lowest NLL on validation data."""
        method, outside = about["method"], load_outside(source, data, setting.test)
        found = {}
        for value, of_value in runs.items():
            with suppress(DivergedError):  # which other seeds did not, if this one did not choose
                found[value] = predictions_of(
                    method, value, of_value, setting, source, outside, draws, about["count"]
                )
        if not found:
            return {**about, "chosen": list(runs)[-1], "scores": None}
        losses = {value: validation_nll(one, source) for value, one in found.items()}
        chosen = min(losses, key=lambda value: losses[value])
        return {
            **about,
            "validation_nll": losses,
            "chosen": chosen,
            "epochs": sum(run.epochs for run in runs[chosen]),
            "bytes": stored_bytes(method, found[chosen].draws),
            "scores": scores_of(found[chosen], source),
        }


def _chains_of(
    groups: Mapping[str, Mapping[str, Any]], chains: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """The jobs of the chains that some groups are made of."""
    needed = {run for group in groups.values() for runs in group["runs"].values() for run in runs}
    return {key: job for key, job in chains.items() if job["run"] in needed}


def _runs(
    config: RivalsConfig, setting: Setting, lrs: Mapping[str, float], seed: int
) -> dict[str, dict[str, list[Run]]]:
    """What each method is made of, by the value of its hyperparameter and its step size.

    All methods try the same factors of the step size that the search has found.
    """
    per_cycle = max(1, config.draws // setting.cycles)

    def plain(lr: float) -> Run:
        return setting.run("SGDM", lr, seed)

    def tried(
        method: str, make: Callable[[str, float], list[Run]], searched: str = "SGDM"
    ) -> dict[str, list[Run]]:
        word = "temperature " if method == "cSGHMC" else ""
        lrs_tried = [factor * lrs[searched] for factor in config.lr_factors]
        return {
            ", ".join([*([word + value] if value else []), f"step size {lr:g}"]): make(value, lr)
            for lr in lrs_tried
            for value in CANDIDATES.get(method, ("",))
        }

    runs = {
        "SGDM": tried("SGDM", lambda _, lr: [plain(lr)]),
        "MC dropout": tried(
            "MC dropout",
            lambda value, lr: [RivalRun.of_run(plain(lr), dropout=float(value))],
        ),
        "SWAG": tried(
            "SWAG",
            lambda value, lr: [RivalRun.of_run(plain(lr), level=float(value), draws=config.draws)],
        ),
        **{name: tried(name, lambda _, lr: [plain(lr)]) for name in LAPLACES},
        "Snapshot-SGDM": tried(
            "Snapshot-SGDM",
            lambda _, lr: [setting.run("Snapshot-SGDM", lr, seed)],
            "Snapshot-SGDM",
        ),
        "cSGHMC": tried(
            "cSGHMC",
            lambda value, lr: [setting.run("cSGHMC", lr, seed, temperature=value, draws=per_cycle)],
            "cSGHMC",
        ),
        SAME: tried(SAME, lambda _, lr: _members(config, setting, lr, seed, 1 / setting.cycles)),
    }
    if seed < setting.long_ensembles:
        runs[MORE] = {"-": _members(config, setting, lrs["SGDM"], seed, 1)}
    return runs


def _members(
    config: RivalsConfig, setting: Setting, lr: float, seed: int, share: float
) -> list[Run]:
    """The networks of an ensemble, each with a share of the epochs; table 1 has the same ones."""
    apart = max(len(config.seeds_of(setting)), TableConfig.ensemble_seeds)
    return [
        setting.run("SGDM", lr, seed + member * apart, epochs=share * setting.epochs)
        for member in range(setting.cycles)
    ]
