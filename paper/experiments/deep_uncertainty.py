"""Entropy on classes that a network has never seen, with cycles that converge (figure 4).

The chains are those of table 1, and the samplers' at further temperatures. Unlike `uncertainty`,
whose step sizes are the paper's and whose cycles end before the network has converged, step sizes
are chosen on validation data, and every method fits its training data: what is left of a difference
in entropy is not underfitting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import ecdf

from csgmcmc.diagnostics import auroc
from csgmcmc.draws import Draw
from paper.experiments.base import Record
from paper.experiments.deep_base import Chains, DeepConfig, DeepExperiment
from paper.experiments.deep_runs import Source, load_outside, predict
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import BY_NAME, rounded
from paper.experiments.uncertainty_methods import ENTROPY_GRID, LOW_ENTROPIES

SAMPLERS = tuple(name for name, method in BY_NAME.items() if method.hot)


@dataclass(frozen=True)
class UncertaintyConfig(DeepConfig):
    """Settings of figure 4: temperatures besides 1/N, for the first `temperature_seeds`."""

    temperatures: tuple[str, ...] = ("0.0045", "0.1", "1")
    temperature_seeds: int = 3


class DeepUncertainty(DeepExperiment[UncertaintyConfig]):
    """A chain for each method, temperature and seed."""

    methods = tuple(BY_NAME)

    def chains(
        self, config: UncertaintyConfig, setting: Setting, lrs: Mapping[str, float]
    ) -> Chains:
        seeds = config.seeds_of(setting)
        table = {
            f"{method}, seed {seed}": setting.run(method, lrs[method], seed)
            for seed in seeds
            for method in BY_NAME
        }
        further = {
            f"{method} at {temperature}, seed {seed}": setting.run(
                method, lrs[method], seed, temperature=temperature
            )
            for seed in seeds[: config.temperature_seeds]
            for method in SAMPLERS
            for temperature in config.temperatures
        }
        return {**table, **further}

    def score(
        self, setting: Setting, source: Source, draws: Sequence[Draw], data: Path | None
    ) -> Record:
        network, outside = setting.network, load_outside(source, data, setting.test)
        tested = predict(network, source, draws, source.test).entropy.cpu().numpy()
        unseen = predict(network, source, draws, outside).entropy.cpu().numpy()
        return {
            **super().score(setting, source, draws, data),
            "outside": {
                "size": len(outside),
                "auroc": rounded(auroc(tested, unseen)),
                "entropy_test": rounded(tested.mean()),
                "entropy_outside": rounded(unseen.mean()),
                "below": [rounded(one) for one in ecdf(unseen).cdf.evaluate(LOW_ENTROPIES)],
                "cdf": [rounded(one) for one in ecdf(unseen).cdf.evaluate(ENTROPY_GRID)],
            },
        }
