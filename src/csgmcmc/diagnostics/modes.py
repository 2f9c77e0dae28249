"""Which modes of a known mixture the draws cover, and with what weights."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from csgmcmc.arguments import check_number
from csgmcmc.diagnostics.arrays import check_finite, check_numbers


def mode_coverage(draws: ArrayLike, modes: ArrayLike, radius: float, more_than: int) -> int:
    """Number of modes with more than `more_than` draws within `radius` of their centre.

    The mode-coverage measure of Zhang et al. 2020, who take radius 0.25 and more than 100 draws.
    `draws` has shape (n, d), `modes` (m, d).
    """
    check_number("radius", radius, at_least=0)
    check_number("more_than", more_than)
    nearest, distances = _nearest_mode(draws, modes)
    counts = np.bincount(nearest[distances <= radius], minlength=len(np.asarray(modes)))
    return int((counts > more_than).sum())


def in_mode_mass(draws: ArrayLike, modes: ArrayLike, radius: float) -> float:
    """Share of the draws within `radius` of some mode's centre.

    Coverage says nothing about the draws between the modes; this does. For a two-dimensional
    Gaussian of standard deviation s and radius 3 * s the true share is 1 - exp(-9 / 2) = 0.989.
    """
    check_number("radius", radius, at_least=0)
    _, distances = _nearest_mode(draws, modes)
    return float((distances <= radius).mean())


def mode_counts(draws: ArrayLike, modes: ArrayLike) -> NDArray[np.int64]:
    """Number of draws nearest to each mode."""
    nearest, _ = _nearest_mode(draws, modes)
    return np.bincount(nearest, minlength=len(np.asarray(modes)))


def mode_total_variation(
    draws: ArrayLike, modes: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Total variation distance between the draws' shares of the modes and the true `weights`.

    Every draw counts for its nearest mode; `weights` are equal by default.
    """
    counts = mode_counts(draws, modes)
    truth = np.full(len(counts), 1 / len(counts))
    if weights is not None:
        truth = check_finite("weights", weights, "m")
        if truth.shape != counts.shape:
            raise ValueError(
                f"weights must be one for each of {len(counts)} modes, got {len(truth)}"
            )
    return float(np.abs(counts / counts.sum() - truth).sum() / 2)


def _nearest_mode(draws: ArrayLike, modes: ArrayLike) -> tuple[NDArray[np.int64], NDArray]:
    """Index of the mode nearest to each draw, and the distance to it."""
    points, centres = check_numbers("draws", draws), check_numbers("modes", modes)
    if points.ndim != 2 or centres.ndim != 2 or points.shape[1] != centres.shape[1]:
        raise ValueError(
            f"draws must have shape (n, d) and modes (m, d), got {points.shape} and {centres.shape}"
        )
    check_finite("draws", points, "n", "d")
    check_finite("modes", centres, "m", "d")
    best = np.full(len(points), np.inf)
    nearest = np.zeros(len(points), dtype=np.int64)
    for index, centre in enumerate(centres):  # one mode at a time: n * m distances may not fit
        squares = ((points - centre) ** 2).sum(axis=1)
        closer = squares < best
        nearest[closer], best[closer] = index, squares[closer]
    return nearest, np.sqrt(best)
