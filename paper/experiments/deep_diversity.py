"""Diversity: where the draws of table 1 lie, what is between them, and what each is worth.

The paper's figure of three panels, from the draws that `cifar` has kept in the same folder (they
are made here where they are missing): multidimensional scaling of 12 draws of a cyclical and of a
traditional sampler; test error on the line between draws, with the statistics of batch
normalisation, where a network has them, estimated anew at every point, and interpolated too; and
test error by the number of cycles, which are the first ones of the same run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from csgmcmc.diagnostics import accuracy, disagreement, within_and_between
from csgmcmc.draws import Draw
from paper.data import PlainBatches, TrainingBatches
from paper.diagnostics import error_barrier, multidimensional_scaling, pairwise_distances
from paper.experiments.base import Record
from paper.experiments.deep_base import Chains, DeepConfig, DeepExperiment, Groups
from paper.experiments.deep_runs import Source, posterior_of, predict, sample
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import Network, ResidualNetwork, finite_nll, rounded
from paper.weight_space import draws_between, errors_by_draw, weight_matrix

T = TypeVar("T")
FAMILIES = {
    "SGLD": ("SGLD", "cSGLD", "Snapshot-SGD"),
    "SGHMC": ("SGHMC", "cSGHMC", "Snapshot-SGDM"),
}


@dataclass(frozen=True)
class DiversityConfig(DeepConfig):
    """Settings of figure 3.

    Args:
        scaled: draws of each sampler that are shown.
        points: on each line.
        refreshed: training images, augmented, for the statistics of batch normalisation.
        test: images that the lines are judged by.
    """

    scaled: int = 12
    points: int = 11
    refreshed: int = 5000
    test: int = 10_000


class Diversity(DeepExperiment[DiversityConfig]):
    """A group is a family of methods, of one seed."""

    methods = tuple(method for family in FAMILIES.values() for method in family)

    def chains(self, config: DiversityConfig, setting: Setting, lrs: Mapping[str, float]) -> Chains:
        return {
            f"{method}, seed {seed}": setting.run(method, lrs[method], seed)
            for seed in config.seeds_of(setting)
            for method in self.methods
        }

    def groups(self, config: DiversityConfig, setting: Setting, lrs: Mapping[str, float]) -> Groups:
        sizes = {
            "scaled": config.scaled,
            "points": config.points,
            "refreshed": config.refreshed,
            "test": config.test,
        }
        return {
            f"draws of {family}, seed {seed}": {
                "runs": [setting.run(method, lrs[method], seed) for method in methods],
                "family": family,
                "seed": seed,
                **sizes,
            }
            for seed in config.seeds_of(setting)
            for family, methods in FAMILIES.items()
        }

    def combine(
        self,
        setting: Setting,
        source: Source,
        draws: Path,
        data: Path | None,
        *,
        runs: Any,
        **options: Any,
    ) -> Record:
        network = setting.network
        old, cyclical, snapshot = (list(sample(run, network, source, draws)) for run in runs)
        ends = {
            "cyclical": neighbours(cyclical),
            "traditional": spread(old, len(neighbours(cyclical))),
        }
        found = {
            "family": options["family"],
            "seed": options["seed"],
            "weights": _weights(network, source, cyclical, spread(old, options["scaled"])),
            "lines": _lines(network, source, ends, options, literal=False),
            "functions": {
                runs[1].method: _functions(network, source, cyclical, _cycles(cyclical)),
                runs[2].method: _functions(network, source, snapshot, _cycles(snapshot)),
                runs[0].method: _functions(network, source, old, [0] * len(old)),
            },
        }
        if isinstance(network, ResidualNetwork):
            found["literal_lines"] = _lines(network, source, ends, options, literal=True)
        return found


def neighbours(draws: list[Draw]) -> list[Draw]:
    """The last draw of each cycle."""
    return list({draw.cycle: draw for draw in draws}.values())


def spread(draws: list[T], count: int) -> list[T]:
    """`count` of the draws, evenly spaced from the first to the last; all if there are fewer."""
    chosen = np.unique(np.linspace(0, len(draws) - 1, count).round().astype(int))
    return [draws[index] for index in chosen]


def _cycles(draws: list[Draw]) -> list[int]:
    return [draw.cycle for draw in draws]


def _weights(network: Network, source: Source, cyclical: list[Draw], old: list[Draw]) -> Record:
    """Places of all draws in two dimensions, and their distances in all."""
    matrix = weight_matrix(network.make(source.classes), [*cyclical, *old])
    distances = pairwise_distances(matrix)
    cycles, count = _cycles(cyclical), len(cyclical)
    inside = within_and_between(distances[:count, :count], cycles)
    single = within_and_between(distances[count:, count:], [0] * len(old))
    return {
        "places": np.round(multidimensional_scaling(distances), 4).tolist(),
        "cycles": [*cycles, *[None] * len(old)],
        "within_cycles": _number(inside.within),
        "between_cycles": _number(inside.between),
        "traditional": _number(single.within),
    }


def _lines(
    network: Network,
    source: Source,
    ends: Mapping[str, list[Draw]],
    options: Mapping[str, Any],
    *,
    literal: bool,
) -> Record:
    """Error on the lines between draws that follow each other, by the kind of sampler.

    Statistics of batch normalisation are estimated anew at every point, as they do not interpolate;
    on the `literal` line they are interpolated like the weights.
    """
    refresh = None
    if isinstance(network, ResidualNetwork) and not literal:
        size = min(options["refreshed"], len(source.train), 500)
        images = TrainingBatches(
            source.train, source.standard, size, seed=0, augment=source.augment
        )
        batches = iter(images)
        refresh = [next(batches) for _ in range(max(1, options["refreshed"] // size))]
    test = PlainBatches(source.test.part(0, options["test"]), source.standard)
    model = network.make(source.classes)
    how = {"points": options["points"], "refresh": refresh, "interpolate_statistics": literal}

    def line(first: Draw, second: Draw) -> Record:
        between = draws_between(model, first, second, **how)
        errors = errors_by_draw(posterior_of(network, source, between), test)
        return {
            "error": [rounded(error) for error in errors],
            "barrier": rounded(error_barrier(errors)),
        }

    return {kind: [line(*both) for both in pairwise(draws)] for kind, draws in ends.items()}


def _functions(network: Network, source: Source, draws: list[Draw], cycles: list[int]) -> Record:
    """Errors of single draws and of the first cycles together, and how much draws disagree."""
    predictive = predict(network, source, draws, source.test)
    members, labels = predictive.member_probs_numpy(), predictive.labels_numpy()
    groups = np.array(cycles)
    inside = within_and_between(disagreement(members), groups)
    later = members[groups > groups.min()]
    return {
        "tested": len(labels),
        "nll": rounded(finite_nll(members.mean(0), labels)),
        "nll_without_first_cycle": (
            rounded(finite_nll(later.mean(0), labels)) if len(later) else None
        ),
        "single_errors": [rounded(1 - accuracy(member, labels)) for member in members],
        "error_by_cycles": [
            rounded(1 - accuracy(members[groups <= cycle].mean(0), labels))
            for cycle in np.unique(groups)
        ],
        "disagreement_within": _number(inside.within),
        "disagreement_between": _number(inside.between),
    }


def _number(value: float) -> float | None:
    """A number that JSON has."""
    return None if np.isnan(value) else rounded(value)
