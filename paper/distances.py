"""Distances between draws and a distribution, or between two sets of draws."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from paper.arguments import check_count

_BLOCK_ENTRIES = 1 << 20  # of the pairwise matrix at once: 8 MB for each temporary of that shape


def wasserstein_gaussian(
    mean_a: ArrayLike, cov_a: ArrayLike, mean_b: ArrayLike, cov_b: ArrayLike
) -> float:
    """2-Wasserstein distance between two Gaussians (Gelbrich 1990), means (d,), covariances (d, d).

    W^2 = |mean_a - mean_b|^2 + tr(A + B - 2 * (A^(1/2) B A^(1/2))^(1/2))
    """
    means = np.asarray(mean_a, dtype=float), np.asarray(mean_b, dtype=float)
    covariances = np.asarray(cov_a, dtype=float), np.asarray(cov_b, dtype=float)
    shapes = [array.shape for array in (*means, *covariances)]
    d = means[0].size
    if shapes != [(d,), (d,), (d, d), (d, d)]:
        raise ValueError(f"means must have shape (d,) and covariances (d, d), got {shapes}")
    root_a, root_b = map(_root, covariances)
    # The trace is the least |root_a - root_b R|^2 over rotations R. Written so, nothing large
    # cancels, and Gaussians that are almost equal are almost at distance 0.
    left, _, right = np.linalg.svd(root_b @ root_a)
    apart = np.linalg.norm(means[0] - means[1]), np.linalg.norm(root_a - root_b @ left @ right)
    return math.hypot(*map(float, apart))


def wasserstein_assignment(a: ArrayLike, b: ArrayLike) -> float:
    """Exact 2-Wasserstein distance between two samples of one size, both (n, d).

    The root mean squared distance of the best pairing. Its cost grows as n^3: n to some thousands.
    """
    x, y = _samples(a, b)
    if len(x) != len(y):
        raise ValueError(f"a and b must have the same size, got {x.shape} and {y.shape}")
    squares = cdist(x, y, "sqeuclidean")
    return float(np.sqrt(squares[linear_sum_assignment(squares)].mean()))


def wasserstein_sliced(
    a: ArrayLike, b: ArrayLike, *, projections: int = 200, seed: int = 0
) -> float:
    """Sliced 2-Wasserstein distance (Bonneel et al. 2015) between samples (n, d) and (m, d).

    The root mean square, over random directions, of the exact distance of the projections. It is
    smaller than the distance itself: for a pure shift it is near |shift| / sqrt(d).
    """
    x, y = _samples(a, b)
    check_count("projections", projections, at_least=1)
    directions = np.random.default_rng(seed).normal(size=(x.shape[1], projections))
    directions /= np.linalg.norm(directions, axis=0)
    # Between two neighbouring levels both quantile functions are constant.
    levels = np.union1d(np.arange(1, len(x) + 1) / len(x), np.arange(1, len(y) + 1) / len(y))
    widths = np.diff(levels, prepend=0.0)
    middles = levels - widths / 2
    quantiles_x, quantiles_y = (
        np.sort(sample @ directions, axis=0)[(middles * len(sample)).astype(int)]
        for sample in (x, y)
    )
    return float(np.sqrt((widths @ (quantiles_x - quantiles_y) ** 2).mean()))


def kernel_stein_discrepancy(
    points: ArrayLike, scores: ArrayLike, *, c: float = 1.0, beta: float = -0.5
) -> float:
    """Kernel Stein discrepancy of points (n, d) from the distribution with these scores.

    `scores` (n, d) are the gradients of log density at the points. The square root of the mean,
    over all pairs and each point with itself (the V-statistic), of

        s_x . s_y * k + s_x . grad_y k + s_y . grad_x k + div_x grad_y k,
        k(x, y) = (c^2 + |x - y|^2)^beta,

    the inverse multiquadric kernel (Gorham and Mackey 2017). For n exact draws it falls as
    1 / sqrt(n). It hardly sees modes that are missing altogether.
    """
    x, s = np.asarray(points, dtype=float), np.asarray(scores, dtype=float)
    if x.ndim != 2 or x.shape != s.shape or not x.size:
        raise ValueError(
            f"points and scores must have one shape (n, d), got {x.shape} and {s.shape}"
        )
    if not c > 0:
        raise ValueError(f"c must be above 0, got {c!r}")
    if not -1 < beta < 0:
        raise ValueError(f"beta must be above -1 and below 0, got {beta!r}")
    x = x - x.mean(axis=0)  # the sum does not change, and less of it cancels
    own = (x * s).sum(axis=1)
    n, rows = len(x), max(_BLOCK_ENTRIES // len(x), 1)
    total = 0.0
    for start in range(0, n, rows):
        block = slice(start, start + rows)
        squares = cdist(x[block], x, "sqeuclidean")
        base = c**2 + squares
        kernel = base**beta
        slope = 2 * beta * kernel / base
        across = own[block, None] + own - s[block] @ x.T - x[block] @ s.T
        total += (s[block] @ s.T * kernel).sum()
        total -= (slope * (across + x.shape[1] + 2 * (beta - 1) * squares / base)).sum()
    return float(np.sqrt(max(total, 0.0)) / n)


def _samples(a: ArrayLike, b: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or not (x.size and y.size):
        raise ValueError(f"a and b must have shapes (n, d) and (m, d), got {x.shape} and {y.shape}")
    return x, y


def _root(covariance: NDArray) -> NDArray[np.float64]:
    """The symmetric square root."""
    if not np.allclose(covariance, covariance.T):
        raise ValueError(f"a covariance must be symmetric, got {covariance}")
    values, vectors = np.linalg.eigh(covariance)
    if values[0] < -1e-8 * abs(values[-1]):
        raise ValueError(f"a covariance must have no negative eigenvalue, got {values[0]:g}")
    return vectors * np.sqrt(values.clip(min=0)) @ vectors.T
