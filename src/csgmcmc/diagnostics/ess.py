"""Effective sample size and R-hat."""

from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import ArrayLike, NDArray

from csgmcmc.arguments import check_choice
from csgmcmc.diagnostics.arrays import check_numbers


def effective_sample_size(draws: ArrayLike, kind: str = "bulk") -> NDArray[np.float64]:
    """Effective sample size of draws of shape (chains, n, ...), one for each entry of (...).

    `kind` is "bulk" (rank-normalised), "tail" (the worse of the 5% and 95% quantiles) or "mean"
    (of the plain mean), all of split chains (Vehtari et al. 2021). Draws that are all equal count
    in full; R-hat is nan for them.
    """
    check_choice("kind", kind, ("bulk", "tail", "mean"))
    prob = (0.05, 0.95) if kind == "tail" else None
    return _summary("ess", draws, method=kind, prob=prob)


def r_hat(draws: ArrayLike) -> NDArray[np.float64]:
    """Rank-normalised split R-hat of draws of shape (chains, n, ...), one for each entry of (...).

    Near 1 where the chains agree; above 1.01 they do not yet (Vehtari et al. 2021). It is nan where
    all draws are equal.
    """
    return _summary("rhat", draws, at_least=2)


def cycles_as_chains(values: ArrayLike, cycles: ArrayLike) -> NDArray:
    """One chain's values (n, ...) as chains (cycles, draws per cycle, ...), one for each cycle.

    `cycles` (n,) is the cycle number of each value. All cycles are cut to the length of the
    shortest, and keep their last draws in the order in which they came: the later in a cycle, the
    closer to equilibrium. R-hat of the result compares the cycles with each other, and, since it
    splits every chain in two, the start of a cycle with its end.
    """
    x, numbers = check_numbers("values", values), check_numbers("cycles", cycles)
    if x.ndim < 1 or numbers.shape != x.shape[:1] or not numbers.size:
        raise ValueError(
            f"values must have shape (n, ...) and cycles (n,), n at least 1, got {x.shape} and "
            f"{numbers.shape}"
        )
    cycle_numbers, lengths = np.unique(numbers, return_counts=True)
    return np.stack([x[numbers == number][-lengths.min() :] for number in cycle_numbers])


def _summary(
    name: str, draws: ArrayLike, *, at_least: int = 1, **options: Any
) -> NDArray[np.float64]:
    """The statistic `name` of arviz-stats; raises where arviz-stats would return nan."""
    x = check_numbers("draws", draws)
    if x.ndim < 2 or x.shape[0] < at_least or x.shape[1] < 4:
        raise ValueError(
            f"draws must have shape (chains, n, ...) with at least {at_least} chains and 4 draws "
            f"in each, got {x.shape}"
        )
    with np.errstate(divide="ignore", invalid="ignore"):  # equal draws have no variance
        return np.asarray(getattr(array_stats, name)(x, chain_axis=0, draw_axis=1, **options))
