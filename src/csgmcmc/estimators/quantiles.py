"""Quantiles of mixtures of Gaussians."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]

HALVINGS = 60  # of an interval: what is left of it is below rounding


def mixture_quantiles(means: Floats, stds: Floats, weights: Floats, levels: Floats) -> Floats:
    """Quantiles at `levels`, of shape (levels, ...), by bisection.

    Args:
        means: of shape (members, ...).
        stds: standard deviations, of the same shape.
        weights: of the members; their sum is 1.
        levels: between 0 and 1.
    """
    shape = (len(levels), *[1] * (means.ndim - 1))
    wanted = levels.reshape(shape)
    # The quantile of a mixture lies between those of its members.
    own = means + stds * ndtri(levels).reshape((len(levels), 1, *[1] * (means.ndim - 1)))
    low, high = own.min(axis=1), own.max(axis=1)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = np.einsum("m,ml...->l...", weights, ndtr((middle - means[:, None]) / stds[:, None]))
        low, high = np.where(below < wanted, middle, low), np.where(below < wanted, high, middle)
    return (low + high) / 2
