"""Tempering: cSGLD at temperatures from 1, the posterior, to 0 (the paper's figures 6 and 7).

Every temperature has the same step size, that of the search at 1/N, the same start and the same
data; at 0 it is Snapshot-SGD with as many draws as the others. The paper's T is read in two ways:
as the temperature of the posterior, and, as in the published code, as the factor of the noise's
standard deviation, which is a temperature of T^2. A grid of temperatures holds both.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paper.experiments.deep_base import Chains, DeepConfig, DeepExperiment
from paper.experiments.deep_settings import Setting


@dataclass(frozen=True)
class TemperingConfig(DeepConfig):
    """Settings of the figures of temperatures.

    Args:
        temperatures: those of the chains.
        explorations: shares of exploration; none is the setting's.
        draws_per_cycle: None is the setting's. Hot draws are worse one by one than together.
    """

    temperatures: tuple[float, ...] = (1.0, 0.5, 0.1, 0.05, 0.01, 0.005, 0.0)
    explorations: tuple[float, ...] = ()
    draws_per_cycle: int | None = None


class Tempering(DeepExperiment[TemperingConfig]):
    """A chain for each temperature and seed."""

    methods = ("cSGLD",)

    def chains(self, config: TemperingConfig, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        draws = config.draws_per_cycle or setting.draws_per_cycle
        return {
            f"temperature {value:g}, beta {exploration:g}, seed {seed}": setting.run(
                "cSGLD",
                lrs["cSGLD"],
                seed,
                temperature=f"{value:g}",
                exploration=exploration,
                draws=draws,
            )
            for seed in config.seeds_of(setting)
            for exploration in config.explorations or (setting.exploration,)
            for value in config.temperatures
        }
