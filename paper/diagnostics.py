"""Diagnostics that only the paper's experiments use: plain arrays in, numbers out."""

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import ArrayLike, NDArray
from scipy.fft import next_fast_len
from scipy.spatial.distance import pdist, squareform


def reference_ess(
    draws: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, truncate: bool
) -> NDArray[np.float64]:
    """Effective sample size of one chain, about the mean and variance of a reference run.

        B / (1 + 2 * sum_{s=1}^{B-1} (1 - s / B) * rho_s),
        rho_s = sum_{b=s+1}^{B} (x_b - mean) * (x_{b-s} - mean) / (variance * (B - s))

    (Hoffman and Gelman 2014; Zhang et al. 2020.) `draws` has shape (n,) or (n, d), and there is
    one number for each dimension. With `truncate` the sum stops before the first lag with
    rho_s < 0.05, the rule of Hoffman and Gelman. Without it the whole is equal to
    B / (1 + B * (xbar - mean)^2 / variance - s2 / variance), s2 the second moment about `mean`:
    it says almost nothing about the chain, and can be negative or more than B.
    """
    x, n = np.asarray(draws, float), len(np.asarray(draws))
    padded = next_fast_len(2 * n, real=True)  # no circular correlation
    spectrum = np.fft.rfft(x - np.asarray(mean), padded, axis=0)
    products = np.fft.irfft(np.abs(spectrum) ** 2, padded, axis=0)
    lags = np.arange(1, n).reshape(-1, *[1] * (x.ndim - 1))
    rho = products[1:n] / (np.asarray(variance) * (n - lags))
    if truncate:
        rho = np.where(np.logical_and.accumulate(rho >= 0.05, axis=0), rho, 0.0)
    return n / (1 + 2 * ((1 - lags / n) * rho).sum(axis=0))


def mcse(draws: ArrayLike) -> NDArray[np.float64]:
    """Monte Carlo standard error of the mean of draws of shape (chains, n, ...)."""
    return np.asarray(array_stats.mcse(np.asarray(draws, float), chain_axis=0, draw_axis=1))


def top_k_accuracy(probabilities: ArrayLike, labels: ArrayLike, k: int) -> float:
    """Fraction of points whose label is among the `k` likeliest classes; ties to the lowest."""
    # Not scikit-learn's, where the highest of equal classes wins and k = K is a warning.
    likeliest = np.argsort(-np.asarray(probabilities), axis=1, kind="stable")[:, :k]
    return float((likeliest == np.asarray(labels)[:, None]).any(axis=1).mean())


def mode_coverage(draws: ArrayLike, modes: ArrayLike, radius: float, more_than: int) -> int:
    """Number of modes with more than `more_than` draws within `radius` of their centre.

    The mode-coverage measure of Zhang et al. 2020, who take radius 0.25 and more than 100 draws.
    `draws` has shape (n, d), `modes` (m, d).
    """
    nearest, distances = _nearest_mode(draws, modes)
    counts = np.bincount(nearest[distances <= radius], minlength=len(np.asarray(modes)))
    return int((counts > more_than).sum())


def in_mode_mass(draws: ArrayLike, modes: ArrayLike, radius: float) -> float:
    """Fraction of the draws within `radius` of some mode's centre.

    Coverage says nothing about the draws between the modes; this does. For a two-dimensional
    Gaussian of standard deviation s and radius 3 * s the true fraction is 1 - exp(-9 / 2) = 0.989.
    """
    _, distances = _nearest_mode(draws, modes)
    return float((distances <= radius).mean())


def mode_total_variation(
    draws: ArrayLike, modes: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Total variation distance between the draws' fractions in the modes and the true `weights`.

    Every draw counts for its nearest mode; `weights` are equal by default.
    """
    nearest, _ = _nearest_mode(draws, modes)
    counts = np.bincount(nearest, minlength=len(np.asarray(modes)))
    truth = np.full(len(counts), 1 / len(counts)) if weights is None else np.asarray(weights)
    return float(np.abs(counts / counts.sum() - truth).sum() / 2)


def _nearest_mode(draws: ArrayLike, modes: ArrayLike) -> tuple[NDArray[np.int64], NDArray]:
    """Index of the mode nearest to each draw, and the distance to it."""
    points, centres = np.asarray(draws, float), np.asarray(modes, float)
    if not np.isfinite(points).all():
        raise ValueError("draws must be finite")
    best = np.full(len(points), np.inf)
    nearest = np.zeros(len(points), dtype=np.int64)
    for index, centre in enumerate(centres):  # one mode at a time: n * m distances may not fit
        squares = ((points - centre) ** 2).sum(axis=1)
        closer = squares < best
        nearest[closer], best[closer] = index, squares[closer]
    return nearest, np.sqrt(best)


def pairwise_distances(points: ArrayLike) -> NDArray[np.float64]:
    """Euclidean distances, (n, n), of n draws flattened to d weights, (n, d).

    From the differences, since |a|² + |b|² - 2ab loses precision for draws that are close together
    and far from 0.
    """
    return squareform(pdist(np.asarray(points, float)))


def multidimensional_scaling(distances: ArrayLike, dimensions: int = 2) -> NDArray[np.float64]:
    """Points of shape (n, dimensions) whose distances are close to `distances`, (n, n).

    Classical scaling (Torgerson 1952): the leading eigenvectors of the doubly centred -D²/2, times
    the square roots of their eigenvalues. It is deterministic, and exact for Euclidean distances of
    points in that many dimensions. The largest coordinate of each dimension is positive.
    """
    matrix = np.asarray(distances, float)
    if not np.allclose(matrix, matrix.T):
        raise ValueError("distances must be symmetric")
    squares = ((matrix + matrix.T) / 2) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    values, vectors = values[::-1][:dimensions], vectors[:, ::-1][:, :dimensions]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(dimensions)]
    # An eigenvalue below 0 is a dimension that the points do not have.
    return vectors * np.sign(largest) * np.sqrt(values.clip(min=0))


def error_barrier(errors: ArrayLike) -> float:
    """Largest rise of the error above the straight line between the errors of the two ends.

    `errors` are of the weights (1-t)·a + t·b, t equally spaced from 0 to 1. At least 0, as the
    ends lie on the line (Entezari et al. 2022). Frankle et al. 2020 take the mean of the ends in
    place of the line: the same where the ends are equally good.
    """
    path = np.asarray(errors, float)
    return float((path - np.linspace(path[0], path[-1], len(path))).max())
