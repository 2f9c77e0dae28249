"""Distances between draws as weight vectors, and the error between them.

`points` has shape (n, d): n draws, each flattened to d weights.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist, squareform

from csgmcmc.arguments import check_count
from csgmcmc.diagnostics.arrays import check_finite


def pairwise_distances(points: ArrayLike) -> NDArray[np.float64]:
    """Euclidean distances, (n, n).

    From the differences, since |a|² + |b|² - 2ab loses precision for draws that are close together
    and far from 0.
    """
    return squareform(pdist(check_finite("points", points, "n", "d")))


def cosine_similarities(points: ArrayLike) -> NDArray[np.float64]:
    """Cosines of the angles between draws as seen from 0, (n, n) (Fort et al. 2019)."""
    vectors = check_finite("points", points, "n", "d")
    if (empty := np.flatnonzero(~vectors.any(axis=1))).size:
        raise ValueError(f"points must not be 0, which has no direction, got 0 at row {empty[0]}")
    return 1 - squareform(pdist(vectors, "cosine"))


def multidimensional_scaling(distances: ArrayLike, dimensions: int = 2) -> NDArray[np.float64]:
    """Points of shape (n, dimensions) whose distances are close to `distances`, (n, n).

    Classical scaling (Torgerson 1952): the leading eigenvectors of the doubly centred -D²/2, times
    the square roots of their eigenvalues. It is deterministic, and exact for Euclidean distances of
    points in that many dimensions. The largest coordinate of each dimension is positive.
    """
    matrix = check_finite("distances", distances, "n", "n")
    count = check_count("dimensions", dimensions, at_least=1)
    if matrix.shape[0] != matrix.shape[1] or len(matrix) < count:
        raise ValueError(
            f"distances must be a square of at least {count} rows, got shape {matrix.shape}"
        )
    if matrix.min() < 0 or matrix.diagonal().any() or not np.allclose(matrix, matrix.T):
        raise ValueError(
            "distances must be at least 0, 0 on the diagonal and symmetric, got a least of "
            f"{matrix.min()}, a diagonal of up to {matrix.diagonal().max()} and an asymmetry of "
            f"up to {np.abs(matrix - matrix.T).max()}"
        )
    squares = ((matrix + matrix.T) / 2) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(count)]
    # An eigenvalue below 0 is a dimension that the points do not have.
    return vectors * np.sign(largest) * np.sqrt(values.clip(min=0))


def error_barrier(errors: ArrayLike) -> float:
    """Largest rise of the error above the straight line between the errors of the two ends.

    `errors` are of the weights (1-t)·a + t·b, t equally spaced from 0 to 1. At least 0, as the
    ends lie on the line (Entezari et al. 2022). Frankle et al. 2020 take the mean of the ends in
    place of the line: the same where the ends are equally good.
    """
    path = check_finite("errors", errors, "n")
    if len(path) < 2:
        raise ValueError(f"errors must have at least the two ends, got {len(path)}")
    return float((path - np.linspace(path[0], path[-1], len(path))).max())
