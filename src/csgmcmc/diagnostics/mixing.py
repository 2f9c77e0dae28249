"""Whether draws mix: effective sample size, R-hat, and distances between draws as functions.

`draws` has shape (chains, n, ...). `members` has shape (s, n, K), with the class probabilities of s
draws on n probe points.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform

from csgmcmc.arguments import check_choice
from csgmcmc.diagnostics.arrays import check_numbers, check_probabilities


def effective_sample_size(draws: ArrayLike, kind: str = "bulk") -> NDArray[np.float64]:
    """Effective sample size of draws of shape (chains, n, ...), one for each entry of (...).

    `kind` is "bulk" (rank-normalised), "tail" (the worse of the 5% and 95% quantiles) or "mean"
    (of the plain mean), all of split chains (Vehtari et al. 2021). Draws that are all equal count
    in full; R-hat is nan for them.
    """
    check_choice("kind", kind, ("bulk", "tail", "mean"))
    prob = (0.05, 0.95) if kind == "tail" else None
    return _summary(array_stats.ess, draws, 1, method=kind, prob=prob)


def r_hat(draws: ArrayLike) -> NDArray[np.float64]:
    """Rank-normalised split R-hat of draws of shape (chains, n, ...), one for each entry of (...).

    Near 1 where the chains agree; above 1.01 they do not yet (Vehtari et al. 2021). It is nan where
    all draws are equal.
    """
    return _summary(array_stats.rhat, draws, 2)


def cycles_as_chains(values: ArrayLike, cycles: ArrayLike) -> NDArray:
    """One chain's values (n, ...) as chains (cycles, draws per cycle, ...), one for each cycle.

    `cycles` (n,) is the cycle number of each value. All cycles are cut to the length of the
    shortest, and keep their last draws in the order in which they came: the later in a cycle, the
    closer to equilibrium. R-hat of the result compares the cycles with each other, and, since it
    splits every chain in two, the start of a cycle with its end.
    """
    x, numbers = check_numbers("values", values), check_numbers("cycles", cycles)
    cycle_numbers, lengths = np.unique(numbers, return_counts=True)
    return np.stack([x[numbers == number][-lengths.min() :] for number in cycle_numbers])


def disagreement(members: ArrayLike) -> NDArray[np.float64]:
    """Share of points on which the top classes of two draws differ, (s, s) (Fort et al. 2019)."""
    forecasts = check_probabilities("members", members, "s", "n", "K")
    return squareform(pdist(forecasts.argmax(axis=2), "hamming"))


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
    same = names[:, None] == names
    pairs = ~np.eye(len(names), dtype=bool)
    chosen = (values[same & pairs], values[~same & pairs])
    return WithinAndBetween(*(float(each.mean()) if each.size else math.nan for each in chosen))


def _summary(
    statistic: Callable[..., Any], draws: ArrayLike, min_chains: int, **options: Any
) -> NDArray[np.float64]:
    """A statistic of arviz-stats; raises where that would return nan for too few draws."""
    x = check_numbers("draws", draws)
    if x.ndim < 2 or x.shape[0] < min_chains or x.shape[1] < 4:
        raise ValueError(
            f"draws must have shape (chains, n, ...) with at least {min_chains} chains and 4 draws "
            f"in each, got {x.shape}"
        )
    with np.errstate(divide="ignore", invalid="ignore"):  # equal draws have no variance
        return np.asarray(statistic(x, chain_axis=0, draw_axis=1, **options))
