"""Parallel chains beside cycles: the paper's table 2, and its appendix on M and beta.

Chains of one group start from different weights and see the data in different orders; their draws
are averaged, all with the same weight. Chains that table 1 has are not run again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paper.experiments.deep_base import Chains, DeepConfig, DeepExperiment, Groups
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import Run

CHAINS = 4
COLUMNS = (  # name, cyclical, chains, what share of the epochs each chain has
    ("cyclical, parallel", True, CHAINS, 1),
    ("decreasing, parallel", False, CHAINS, 1),
    ("decreasing, parallel, half", False, CHAINS, 2),
    ("cyclical, single", True, 1, 1),
)
KINDS = {"SGLD": ("SGLD", "cSGLD"), "SGHMC": ("SGHMC", "cSGHMC")}


class _OfGroups(DeepExperiment[Any]):
    """An experiment whose chains are those of its groups."""

    def chains(self, config: Any, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        runs = [
            run for group in self.groups(config, setting, lrs).values() for run in group["runs"]
        ]
        return {_name(run): run for run in dict.fromkeys(runs)}


class Parallel(_OfGroups):
    """Groups are the four columns of table 2, for SGLD and SGHMC."""

    methods = ("SGLD", "SGHMC", "cSGLD", "cSGHMC")

    def groups(self, config: DeepConfig, setting: Setting, lrs: Mapping[str, float]) -> Groups:
        groups = {}
        for seed in config.seeds_of(setting):
            for kind, methods in KINDS.items():
                for column, cyclical, chains, share in COLUMNS:
                    epochs = setting.epochs / share
                    runs = [
                        setting.run(
                            methods[cyclical], lrs[methods[cyclical]], CHAINS * seed + number,
                            epochs=epochs,
                        )
                        for number in range(chains)
                    ]  # fmt: skip
                    groups[f"{kind}, {column}, seed {seed}"] = {
                        "runs": runs,
                        "kind": kind,
                        "column": column,
                        "epochs": epochs,
                        "seed": seed,
                    }
        return groups


@dataclass(frozen=True)
class SensitivityConfig(DeepConfig):
    """Settings of table 6: pairs of M and beta."""

    pairs: tuple[tuple[int, float], ...] = ((2, 0.8), (5, 0.8), (4, 0.7), (4, 0.9))


class Sensitivity(_OfGroups):
    """Groups are cSGLD with M cycles, and M chains of SGLD with an M-th of the epochs each."""

    methods = ("SGLD", "cSGLD")

    def groups(
        self, config: SensitivityConfig, setting: Setting, lrs: Mapping[str, float]
    ) -> Groups:
        return {
            f"{label}, M={cycles}, beta={exploration:g}, seed {seed}": {
                "runs": runs,
                "method": label,
                "cycles": cycles,
                "exploration": exploration,
                "seed": seed,
            }
            for seed in config.seeds_of(setting)
            for cycles, exploration in config.pairs
            for label, runs in _sides(setting, lrs, seed, cycles, exploration)
        }


def _sides(
    setting: Setting, lrs: Mapping[str, float], seed: int, cycles: int, exploration: float
) -> Iterator[tuple[str, list[Run]]]:
    """One chain of M cycles, and M chains, of the same epochs in all."""
    one = setting.run("cSGLD", lrs["cSGLD"], seed, cycles=cycles, exploration=exploration)
    yield "cSGLD", [one]
    yield (
        "parallel SGLD",
        [
            setting.run("SGLD", lrs["SGLD"], cycles * seed + n, epochs=setting.epochs / cycles)
            for n in range(cycles)
        ],
    )


def _name(run: Run) -> str:
    """What tells the chains of these experiments apart."""
    cycles = f", {run.cycles} cycles, beta {run.exploration:g}" if run.cycles > 1 else ""
    return f"{run.method}, {run.epochs:g} epochs{cycles}, chain {run.seed}"
