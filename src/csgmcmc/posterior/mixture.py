"""Mixtures of the members' distributions of a number: quantiles and samples."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

BISECTIONS = 60  # of an interval: the rest of it is below rounding


@dataclass(frozen=True, eq=False)
class Mixture:
    """The distribution of a target under each draw, and the draws' weights."""

    family: str  # name of a distribution in `scipy.stats`
    weights: Floats  # of the draws, summing to 1
    parameters: dict[str, Tensor]  # of the distribution, each of shape (draws, points, ...)

    def quantiles(self, levels: Floats) -> Floats:
        """Quantiles of shape (levels, points, ...), by bisection between those of the members.

        For whole numbers it is the first that reaches the level.
        """
        weights = self.weights[self.weights > 0]
        arrays = self._arrays(np.flatnonzero(self.weights))
        members = scipy_family(self.family)(**{k: array[:, None] for k, array in arrays.items()})
        whole = hasattr(members, "pmf")
        points = next(iter(arrays.values())).ndim - 1
        wanted = levels.reshape(len(levels), *[1] * points)
        own = members.ppf(wanted)  # (members, levels, points, ...)
        low, high = own.min(axis=0), own.max(axis=0)
        low = low - 1 if whole else low
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            middle = np.floor(middle) if whole else middle
            below = np.einsum("m,ml...->l...", weights, members.cdf(middle)) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if whole and (high - low <= 1).all():
                break
        return high if whole else (low + high) / 2

    def sample(self, count: int, seed: int | None) -> Floats:
        """Simulated targets, of shape (count, points, ...), each from a draw chosen by weight."""
        generator = np.random.default_rng(seed)
        chosen = generator.choice(len(self.weights), count, p=self.weights)
        return scipy_family(self.family)(**self._arrays(chosen)).rvs(random_state=generator)

    def _arrays(self, numbers: NDArray[np.int64]) -> dict[str, Floats]:
        """The parameters of some members."""
        return {name: p.double().cpu().numpy()[numbers] for name, p in self.parameters.items()}


def scipy_family(name: str) -> Any:
    """A distribution of `scipy.stats`."""
    from scipy import stats  # noqa: PLC0415  (slow to import)

    return getattr(stats, name)
