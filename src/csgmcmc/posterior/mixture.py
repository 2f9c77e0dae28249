"""Mixtures of the members' distributions of a number: quantiles and samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

HALVINGS = 60  # of an interval: what is left of it is below rounding


@dataclass(frozen=True, eq=False)
class Mixture:
    """The distribution of a target under each draw, and the draws' weights.

    Attributes:
        family: name of a distribution in `scipy.stats`.
        weights: of the draws, summing to 1.
        parameters: arguments of the distribution, each of shape (draws, points, ...).
    """

    family: str
    weights: Floats
    parameters: dict[str, Tensor]

    @classmethod
    def joined(cls, parts: Sequence["Mixture"]) -> "Mixture":
        """Those of several batches, concatenated."""
        first = parts[0]
        parameters = {
            name: torch.cat([part.parameters[name] for part in parts], dim=1)
            for name in first.parameters
        }
        return cls(first.family, first.weights, parameters)

    def quantiles(self, levels: Floats) -> Floats:
        """Of shape (levels, points, ...)."""
        members = self._members(np.flatnonzero(self.weights))
        shaped = levels.reshape(len(levels), *[1] * (self._shape_of_members - 1))
        own = members.ppf(shaped)
        weights = self.weights[self.weights > 0]
        return mixture_quantiles(members.cdf, own, weights, levels, whole=self._is_discrete)

    def sample(self, count: int, seed: int | None) -> Floats:
        """Simulated targets, of shape (count, points, ...): each of a draw picked by its weight."""
        generator = np.random.default_rng(seed)
        chosen = generator.choice(len(self.weights), count, p=self.weights)
        return self._members(chosen, spread=False).rvs(random_state=generator)

    @property
    def _shape_of_members(self) -> int:
        return next(iter(self.parameters.values())).ndim

    @property
    def _is_discrete(self) -> bool:
        from scipy import stats  # noqa: PLC0415  (slow to import)

        return isinstance(getattr(stats, self.family), stats.rv_discrete)

    def _members(self, numbers: NDArray[np.int64], *, spread: bool = True) -> Any:
        """The distributions of some members; with `spread`, with a dimension for levels."""
        from scipy import stats  # noqa: PLC0415  (slow to import)

        arrays = {name: p.double().cpu().numpy()[numbers] for name, p in self.parameters.items()}
        if spread:
            arrays = {name: array[:, None] for name, array in arrays.items()}
        return getattr(stats, self.family)(**arrays)


def mixture_quantiles(
    cumulative: Callable[[Floats], Floats],
    own: Floats,
    weights: Floats,
    levels: Floats,
    *,
    whole: bool = False,
) -> Floats:
    """Quantiles of a mixture at `levels`, of shape (levels, ...), by bisection.

    Args:
        cumulative: the cumulative probabilities of the members, (members, levels, ...), at some
            numbers (levels, ...).
        own: the quantiles of the members, (members, levels, ...): that of the mixture lies between.
        weights: of the members; their sum is 1.
        levels: between 0 and 1.
        whole: the numbers are whole: the quantile is the first that reaches the level.
    """
    wanted = levels.reshape(len(levels), *[1] * (own.ndim - 2))
    low, high = own.min(axis=0), own.max(axis=0)
    low = low - 1 if whole else low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        middle = np.floor(middle) if whole else middle
        below = np.einsum("m,ml...->l...", weights, cumulative(middle)) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
        if whole and (high - low <= 1).all():
            break
    return high if whole else (low + high) / 2
