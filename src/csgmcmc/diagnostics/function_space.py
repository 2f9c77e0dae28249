"""How different draws are as functions.

`members` has shape (s, n, K): the class probabilities of s draws on n probe points.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.special import kl_div

from csgmcmc.diagnostics.arrays import check_probabilities


def disagreement(members: ArrayLike) -> NDArray[np.float64]:
    """Share of points on which the top classes of two draws differ, (s, s) (Fort et al. 2019)."""
    forecasts = check_probabilities("members", members, "s", "n", "K")
    return squareform(pdist(forecasts.argmax(axis=2), "hamming"))


def kl_divergence(members: ArrayLike) -> NDArray[np.float64]:
    """Mean over points of KL(p_i || p_j) = sum of p_i log(p_i / p_j), (s, s).

    Row i, column j; not symmetric. A class that p_i excludes adds nothing; one that only p_j
    excludes makes it infinite.
    """
    forecasts = check_probabilities("members", members, "s", "n", "K")
    # kl_div adds p_j - p_i, of sum 0, so that no term is negative and rounding cannot show as
    # a divergence below 0. One pair at a time: (s, s, n, K) may not fit.
    return np.array([[kl_div(p, q).sum(axis=1).mean() for q in forecasts] for p in forecasts])


@dataclass(frozen=True)
class WithinAndBetween:
    """Means over pairs of different draws; nan where there is no such pair.

    Attributes:
        within: over pairs of the same group.
        between: over pairs of different groups.
    """

    within: float
    between: float


def within_and_between(matrix: ArrayLike, groups: ArrayLike) -> WithinAndBetween:
    """Mean of `matrix`, (s, s), inside groups of draws (such as cycles) and across them.

    Both (i, j) and (j, i) count, so `matrix` need not be symmetric; the diagonal does not. It may
    hold infinities, such as divergences.
    """
    values, names = np.asarray(matrix, dtype=float), np.asarray(groups)
    if values.ndim != 2 or names.ndim != 1 or values.shape != (len(names), len(names)):
        raise ValueError(
            f"matrix must have shape (s, s) and groups (s,), got {values.shape} and {names.shape}"
        )
    if np.isnan(values).any():
        raise ValueError(f"matrix must hold no nan, got {np.isnan(values).sum()} of them")
    same = names[:, None] == names
    pairs = ~np.eye(len(names), dtype=bool)
    return WithinAndBetween(_mean(values[same & pairs]), _mean(values[~same & pairs]))


def _mean(values: NDArray) -> float:
    """Mean, nan of nothing."""
    return float(values.mean()) if values.size else float("nan")
