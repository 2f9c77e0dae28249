"""Sentences of the paper that no table of it tests.

- "Noise injection early in training hurts convergence": SGLD and cSGLD with noise from the first
  step, beside noise in the last quarter of the epochs, or in the last part of each cycle.
- "One may increase the temperature from 0 to 1 when the step size is decreasing": cSGLD with a
  temperature that rises along each cycle, beside one that jumps.
- A large step size that falls has "super-convergence": SGD with the searched step size for a tenth
  of the epochs, beside a tenth of the step size for all epochs.

That draws of all cycles have similar likelihoods is on the page of table 1, which has the draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paper.experiments.deep_base import Chains, DeepConfig, DeepExperiment
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import Run

NOISE = {"SGLD": ("late", "always"), "cSGLD": ("late", "rising", "always")}
TENTH = 0.1


@dataclass(frozen=True)
class StagesConfig(DeepConfig):
    """Temperatures of the samplers."""

    temperatures: tuple[str, ...] = ("0.0045", "1")


class Stages(DeepExperiment[StagesConfig]):
    """A chain for each kind of noise, temperature and seed, and for each length of SGD."""

    methods = ("SGD", "SGLD", "cSGLD")

    def chains(self, config: StagesConfig, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        chains: dict[str, Run] = {}
        for seed in config.seeds_of(setting):
            for method, kinds in NOISE.items():
                for temperature in config.temperatures:
                    for noise in kinds:
                        chains[f"{method} at {temperature}, noise {noise}, seed {seed}"] = (
                            setting.run(
                                method, lrs[method], seed, temperature=temperature, noise=noise
                            )
                        )
            for share in (1, TENTH) if setting.searched else ():
                for length in (1, TENTH):
                    lr, epochs = share * lrs["SGD"], length * setting.epochs
                    chains[f"SGD, step size {lr:g}, {epochs:g} epochs, seed {seed}"] = setting.run(
                        "SGD", lr, seed, epochs=epochs
                    )
        return chains
