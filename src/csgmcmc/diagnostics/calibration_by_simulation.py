"""Simulation-based calibration: whether the sampler is right on average over the prior.

Draw weights from the prior, data given the weights, and draws from the posterior given the data.
If sampler and model are right, the rank of the true weight among its draws is uniform (Talts et al.
2018). Ranks heaped at both ends mean a posterior that is too narrow, in the middle too wide. The
test takes the draws of a repeat to be independent: thin them, since correlated draws look too
narrow.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from csgmcmc.arguments import check_count
from csgmcmc.diagnostics.arrays import check_no_nan, check_numbers


def calibration_ranks(truths: ArrayLike, draws: ArrayLike, *, seed: int = 0) -> NDArray[np.int64]:
    """Rank of each truth among its n draws: how many are below it, 0 to n.

    `truths` has shape (repeats, d), `draws` (repeats, n, d), and the ranks (repeats, d). Draws
    equal to the truth are placed below or above it at random, so that ranks stay uniform.
    """
    truth = check_numbers("truths", truths)
    x = check_numbers("draws", draws)
    if truth.ndim != 2 or x.ndim != 3 or truth.shape != (x.shape[0], x.shape[2]):
        raise ValueError(
            "truths must have shape (repeats, d) and draws (repeats, n, d), got "
            f"{truth.shape} and {x.shape}"
        )
    below = (x < truth[:, None]).sum(axis=1)
    equal = (x == truth[:, None]).sum(axis=1)
    return below + np.random.default_rng(seed).integers(equal + 1)


def rank_uniformity(ranks: ArrayLike, draws_per_repeat: int, bins: int = 10) -> NDArray[np.float64]:
    """p-value, for each dimension, of the chi-square test that the ranks (repeats, d) are uniform.

    Bins need not divide the draws_per_repeat + 1 possible ranks: each is expected to hold as many
    as its share of them. Every bin should expect 5 repeats at least.
    """
    r = check_no_nan("ranks", ranks)
    possible = check_count("draws_per_repeat", draws_per_repeat, at_least=1) + 1
    check_count("bins", bins, at_least=2)
    if r.ndim != 2 or not np.issubdtype(r.dtype, np.integer):
        raise ValueError(f"ranks must be whole numbers (repeats, d), got {r.dtype} of {r.shape}")
    if r.size and not (r.min() >= 0 and r.max() < possible):
        raise ValueError(
            f"ranks must lie in 0 to draws_per_repeat = {draws_per_repeat}, got {r.min()} to "
            f"{r.max()}"
        )
    share = np.bincount(np.arange(possible) * bins // possible, minlength=bins) / possible
    expected = len(r) * share
    if expected.min() < 5:
        raise ValueError(
            f"every bin must expect at least 5 repeats, got {len(r)} repeats of "
            f"{draws_per_repeat} draws in {bins} bins"
        )
    observed = [np.bincount(column * bins // possible, minlength=bins) for column in r.T]
    return np.array([stats.chisquare(counts, expected).pvalue for counts in observed])
