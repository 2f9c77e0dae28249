"""Distances between draws as functions, by their predictions.

`members` has shape (s, n, K): the class probabilities of s draws on n probe points.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform
from scipy.special import xlogy

from csgmcmc.diagnostics.arrays import check_numbers, check_probabilities


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
    p = forecasts.reshape(len(forecasts), -1)
    own = xlogy(p, p).sum(axis=1)
    with np.errstate(divide="ignore"):
        log_q = np.where(p > 0, np.log(p), 0.0)
    excluded = (p > 0).astype(float) @ (p == 0).T > 0
    # All pairs in one product. The masses differ by rounding only, and count as in the divergence
    # of measures, which is never below 0.
    mass = p.sum(axis=1)
    sums = own[:, None] - p @ log_q.T + mass - mass[:, None]
    divergences = np.maximum(sums, 0) / forecasts.shape[1]
    return np.where(excluded, np.inf, divergences)


class WithinAndBetween(NamedTuple):
    """Means over pairs of draws of the same group, and of different ones; nan if there are none."""

    within: float
    between: float


def within_and_between(matrix: ArrayLike, groups: ArrayLike) -> WithinAndBetween:
    """Mean of `matrix`, (s, s), inside groups of draws (such as cycles) and across them.

    Both (i, j) and (j, i) count, so `matrix` need not be symmetric; the diagonal does not. It may
    hold infinities, such as divergences.
    """
    values, names = check_numbers("matrix", matrix), check_numbers("groups", groups)
    if values.ndim != 2 or names.ndim != 1 or values.shape != (len(names), len(names)):
        raise ValueError(
            f"matrix must have shape (s, s) and groups (s,), got {values.shape} and {names.shape}"
        )
    same = names[:, None] == names
    pairs = ~np.eye(len(names), dtype=bool)
    chosen = (values[same & pairs], values[~same & pairs])
    return WithinAndBetween(*(float(each.mean()) if each.size else math.nan for each in chosen))
