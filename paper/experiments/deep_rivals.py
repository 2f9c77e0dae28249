"""What people would use instead, in the settings of table 1.

At the budget of every method: one network (SGDM), MC dropout, SWAG, Laplace approximations of the
last layer and of all weights, Snapshot-SGDM, cSGHMC, and a deep ensemble of M networks that share
the budget; and beyond it, an ensemble of M networks with the budget each. Every method that has a
hyperparameter of its uncertainty gets three values of it with the first seed, of which validation
data choose; the other seeds have the chosen one. Methods of several cycles or networks may try a
larger step size, too, with each value.
"""

from collections.abc import Iterator, Mapping, Sequence
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
        larger_lr: factor of the step size that Snapshot-SGDM, cSGHMC and the ensemble of the same
            budget try, too; 1 for none. Unlike the claims of the paper, this comparison does not
            ask that every cycle fits the training data, which limits the step size of table 1.
    """

    draws: int = 20
    larger_lr: float = 1.0


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
    """What each method is made of, by the value of its hyperparameter."""
    sgdm = setting.run("SGDM", lrs["SGDM"], seed)
    factors = dict.fromkeys((1.0, config.larger_lr))
    per_cycle = max(1, config.draws // setting.cycles)
    runs = {
        "SGDM": {"-": [sgdm]},
        "MC dropout": {
            value: [RivalRun.of_run(sgdm, dropout=float(value))]
            for value in CANDIDATES["MC dropout"]
        },
        "SWAG": {
            value: [RivalRun.of_run(sgdm, level=float(value), draws=config.draws)]
            for value in CANDIDATES["SWAG"]
        },
        "Laplace, last layer": {value: [sgdm] for value in CANDIDATES["Laplace, last layer"]},
        "Laplace, diagonal": {value: [sgdm] for value in CANDIDATES["Laplace, diagonal"]},
        "Snapshot-SGDM": {
            f"step size {lr:g}": [setting.run("Snapshot-SGDM", lr, seed)]
            for lr in (factor * lrs["Snapshot-SGDM"] for factor in factors)
        },
        "cSGHMC": {
            f"temperature {value}, step size {lr:g}": [
                setting.run("cSGHMC", lr, seed, temperature=value, draws=per_cycle)
            ]
            for lr in (factor * lrs["cSGHMC"] for factor in factors)
            for value in CANDIDATES["cSGHMC"]
        },
        SAME: {
            f"step size {lr:g}": _members(config, setting, lr, seed, 1 / setting.cycles)
            for lr in (factor * lrs["SGDM"] for factor in factors)
        },
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
