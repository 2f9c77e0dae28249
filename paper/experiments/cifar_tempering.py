"""Tempering: cSGLD on CIFAR at temperatures from 1, the posterior, to 0 (the paper's appendix).

Every temperature has the same step size, that of the search at 1/N, the same start and the same
data; at 0 it is Snapshot-SGD with as many draws as the others.
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


@dataclass(frozen=True)
class TemperingConfig(CifarConfig):
    """Settings of `cifar-tempering`."""

    temperatures: tuple[float, ...] = (1.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.0)


class CifarTempering(CifarExperiment[TemperingConfig]):
    """A chain for each temperature and seed."""

    name = "cifar-tempering"
    summary = "NLL and error of cSGLD on CIFAR by temperature"
    methods = ("cSGLD",)
    presets = {  # noqa: RUF012  (the base declares it)
        "paper": TemperingConfig(settings=tuple(PAPER.values())),
        "laptop": TemperingConfig(settings=(LAPTOPS["cifar10"],)),
        "smoke": TemperingConfig(settings=(SMOKE["cifar10"],), temperatures=(1.0, 0.01, 0.0)),
    }

    def chains(self, config: TemperingConfig, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        return {
            f"temperature {value:g}, seed {seed}": setting.run(
                "cSGLD", lrs["cSGLD"], seed, temperature=f"{value:g}"
            )
            for seed in config.seeds_of(setting)
            for value in config.temperatures
        }

    def groups(self, config: TemperingConfig, setting: Setting, lrs: Mapping[str, float]) -> Groups:
        return {}
