"""CIFAR: eight methods at equal budgets, and deep ensembles beside them (the paper's table 1).

Every method has the same network, epochs, batches, augmentation and test data, and one seed gives
all of them the same starting weights and the same order of the data. Temperature 1/N is that of
the published code; the paper says 0.0045, which is a further row of each sampler. At the preset
laptop each method has the step size that is best on held-out training data, by the same search.

Two rows that the paper lacks are ensembles of M networks trained by SGDM from different starts, at
the same total number of epochs as every method, and at M times as many.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paper.experiments.cifar_base import (
    LAPTOPS,
    PAPER,
    SMOKE,
    Chains,
    CifarConfig,
    CifarExperiment,
    Groups,
    Setting,
)
from paper.experiments.methods import BY_NAME, Run

LITERAL = "0.0045"
SAME, MORE = "ensemble, same budget", "ensemble, M budgets"


@dataclass(frozen=True)
class CifarTableConfig(CifarConfig):
    """Settings of `cifar`; the paper's literal temperature is for the first `literal_seeds`."""

    literal_seeds: int = 3


class CifarTable(CifarExperiment[CifarTableConfig]):
    """Chains are runs of the methods and members of the ensembles; groups are the ensembles."""

    name = "cifar"
    summary = "error, NLL and calibration of eight methods on CIFAR-10 and CIFAR-100"
    methods = tuple(BY_NAME)
    presets = {  # noqa: RUF012  (the base declares it)
        "paper": CifarTableConfig(seeds=3, settings=tuple(PAPER.values())),
        "laptop": CifarTableConfig(seeds=3, settings=tuple(LAPTOPS.values()), literal_seeds=1),
        "smoke": CifarTableConfig(seeds=2, settings=tuple(SMOKE.values()), literal_seeds=1),
    }

    def chains(
        self, config: CifarTableConfig, setting: Setting, lrs: Mapping[str, float]
    ) -> Chains:
        chains: dict[str, Run] = {}
        for seed in config.seeds_of(setting):
            for method in BY_NAME:
                chains[f"{method}, seed {seed}"] = setting.run(method, lrs[method], seed)
        for seed in config.seeds_of(setting)[: config.literal_seeds]:
            for method in (name for name in BY_NAME if BY_NAME[name].hot):
                run = setting.run(method, lrs[method], seed, temperature=LITERAL)
                chains[f"{method} at {LITERAL}, seed {seed}"] = run
        for label, members in _ensembles(config, setting, lrs).items():
            for number, run in enumerate(members):
                if run not in chains.values():  # the first of the longer ones is in the table
                    chains[f"{label}, network {number}"] = run
        return chains

    def groups(
        self, config: CifarTableConfig, setting: Setting, lrs: Mapping[str, float]
    ) -> Groups:
        return {
            label: {
                "runs": runs,
                "method": label.split(", seed", maxsplit=1)[0],
                "seed": number % len(config.seeds_of(setting)),
            }
            for number, (label, runs) in enumerate(_ensembles(config, setting, lrs).items())
        }


def _ensembles(
    config: CifarTableConfig, setting: Setting, lrs: Mapping[str, float]
) -> dict[str, list[Run]]:
    """Members of the ensembles of each seed; no network is in two ensembles of a row."""
    seeds, ensembles = config.seeds_of(setting), {}
    for label, epochs in ((SAME, setting.epochs / setting.cycles), (MORE, setting.epochs)):
        for seed in seeds:
            ensembles[f"{label}, seed {seed}"] = [
                setting.run("SGDM", lrs["SGDM"], seed + member * len(seeds), epochs=epochs)
                for member in range(setting.cycles)
            ]
    return ensembles
