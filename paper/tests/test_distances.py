from itertools import permutations

import numpy as np
import pytest

from paper import distances
from paper.distances import (
    kernel_stein_discrepancy,
    wasserstein_assignment,
    wasserstein_gaussian,
    wasserstein_sliced,
)

# Statistical tests fail by chance once in 150,000 times: 4.5 standard errors.
SIGMAS = 4.5


def rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def test_gaussians_with_common_axes():
    turn = rotation(0.3)
    cov_a, cov_b = turn @ np.diag([4.0, 9.0]) @ turn.T, turn @ np.diag([1.0, 25.0]) @ turn.T
    # sqrt(3^2 + 4^2 of the means, (2 - 1)^2 + (3 - 5)^2 of the standard deviations)
    assert wasserstein_gaussian([0, 0], cov_a, [3, 4], cov_b) == pytest.approx(30**0.5)


def test_gaussians_with_different_axes():
    turn = rotation(0.5)
    cov_a, cov_b = np.diag([4.0, 1.0]), turn @ np.diag([9.0, 1.0]) @ turn.T
    # in two dimensions tr(M^(1/2)) = sqrt(tr(M) + 2 * sqrt(det(M))), here of M = A^(1/2) B A^(1/2)
    cross = (np.trace(cov_a @ cov_b) + 2 * np.linalg.det(cov_a @ cov_b) ** 0.5) ** 0.5
    exact = (np.trace(cov_a + cov_b) - 2 * cross) ** 0.5
    assert wasserstein_gaussian([1, 1], cov_a, [1, 1], cov_b) == pytest.approx(exact)
    assert wasserstein_gaussian([1, 1], cov_b, [1, 1], cov_a) == pytest.approx(exact)


def test_degenerate_and_equal_gaussians():
    line = np.array([[1.0, 1.0], [1.0, 1.0]])
    assert wasserstein_gaussian([0, 0], line, [0, 0], np.zeros((2, 2))) == pytest.approx(2**0.5)
    turn = rotation(1.0)
    cov = turn @ np.diag([1e6, 1.0]) @ turn.T
    assert wasserstein_gaussian([0, 0], cov, [0, 0], cov) < 1e-9


def test_assignment_finds_the_best_pairing():
    a, b = np.random.default_rng(0).normal(size=(2, 6, 3))
    best = min(((a - b[list(order)]) ** 2).sum(axis=1).mean() for order in permutations(range(6)))
    assert wasserstein_assignment(a, b) == pytest.approx(best**0.5)
    assert wasserstein_assignment(a, a[::-1]) == 0


def test_sliced_distance_in_one_dimension_is_exact():
    a, b = np.random.default_rng(1).normal(size=(2, 50, 1))
    exact = wasserstein_assignment(a, b)
    assert wasserstein_sliced(a, b, projections=3) == pytest.approx(exact)
    # halves against quarters: 0 -> 0 of 1/2, 2 -> 3 of 1/2
    assert wasserstein_sliced([[2.0], [0.0]], [[3.0], [0.0], [3.0], [0.0]]) == pytest.approx(
        0.5**0.5
    )
    # thirds against halves: 0 -> 0 of 1/3, 1 -> 0 and 1 -> 1 of 1/6 each, 2 -> 1 of 1/3
    assert wasserstein_sliced([[0.0], [1.0], [2.0]], [[0.0], [1.0]]) == pytest.approx(0.5**0.5)


def test_sliced_distance_of_repeated_points_is_zero():
    a = np.random.default_rng(2).normal(size=(7, 3))
    assert wasserstein_sliced(a, np.repeat(a, 3, axis=0)) == pytest.approx(0, abs=1e-12)


def test_sliced_distance_of_a_shift():
    a = np.random.default_rng(3).normal(size=(30, 5))
    shift, projections = np.array([3.0, 0.0, 0.0, 0.0, 4.0]), 2000
    # the squared cosine of a random direction has mean 1 / d and variance 2 (d - 1) / d^2 / (d + 2)
    error = 25 * (8 / 25 / 7 / projections) ** 0.5
    squared = wasserstein_sliced(a, a + shift, projections=projections) ** 2
    assert abs(squared - 25 / 5) < SIGMAS * error


def test_stein_discrepancy_of_one_and_two_points():
    # For a point alone, |s|^2 * c^(2 beta) - 2 * beta * d * c^(2 beta - 2).
    assert kernel_stein_discrepancy([[7.0, 1.0]], [[3.0, 4.0]], c=2.0) == pytest.approx(
        (25 / 2 + 2 / 8) ** 0.5
    )
    # Points 0 and 1 of N(0, 1), scores 0 and -1, c = 1, beta = -1/2: each alone 0 + 1 and 1 + 1.
    # Across, base 2: s_x s_y k = 0; the slope -2^(-3/2) times (s_x - s_y)(x - y) = -1 counts
    # negative, which makes -2^(-3/2); div_x grad_y k = 2^(-3/2) - 3 * 2^(-5/2) = -2^(-5/2).
    across = -(2**-1.5) - 2**-2.5
    exact = ((1 + 2 + 2 * across) / 4) ** 0.5
    assert kernel_stein_discrepancy([[0.0], [1.0]], [[0.0], [-1.0]]) == pytest.approx(exact)


def unbiased_square(points: np.ndarray, scores: np.ndarray) -> float:
    """The U-statistic, which leaves out each point with itself: mean 0 under the distribution."""
    n, d = points.shape
    alone = (scores**2).sum() + n * d
    return (n**2 * kernel_stein_discrepancy(points, scores) ** 2 - alone) / (n * (n - 1))


def test_stein_discrepancy_is_zero_on_average_for_exact_draws_only():
    points = np.random.default_rng(4).normal(size=(400, 50, 2)) @ np.diag([1.0, 2.0])
    precisions = np.array([1.0, 0.25])
    exact = np.array([unbiased_square(x, -precisions * x) for x in points])
    assert abs(exact.mean()) < SIGMAS * exact.std(ddof=1) / len(exact) ** 0.5
    wider = np.array([unbiased_square(1.5 * x, -1.5 * precisions * x) for x in points])
    shifted = np.array([unbiased_square(x + 0.5, -precisions * (x + 0.5)) for x in points])
    for wrong in (wider, shifted):
        assert wrong.mean() > 10 * wrong.std(ddof=1) / len(wrong) ** 0.5


def test_stein_discrepancy_depends_on_neither_order_nor_origin_nor_blocks(monkeypatch):
    rng = np.random.default_rng(5)
    points, scores, order = *rng.normal(size=(2, 40, 3)), rng.permutation(40)
    value = kernel_stein_discrepancy(points, scores, beta=-0.3)
    assert kernel_stein_discrepancy(points[order] + 1e3, scores[order], beta=-0.3) == pytest.approx(
        value
    )
    monkeypatch.setattr(distances, "_BLOCK_ENTRIES", 300)  # 7 rows at once: the last block has 5
    assert kernel_stein_discrepancy(points, scores, beta=-0.3) == pytest.approx(value)


def test_arguments_are_checked():
    eye = np.eye(2)
    with pytest.raises(ValueError, match=r"got \[\(2,\), \(3,\), \(2, 2\), \(2, 2\)\]"):
        wasserstein_gaussian([0, 0], eye, [0, 0, 0], eye)
    with pytest.raises(ValueError, match="symmetric"):
        wasserstein_gaussian([0, 0], [[1.0, 0.5], [0.0, 1.0]], [0, 0], eye)
    with pytest.raises(ValueError, match="no negative eigenvalue, got -1"):
        wasserstein_gaussian([0, 0], np.diag([1.0, -1.0]), [0, 0], eye)
    with pytest.raises(ValueError, match=r"same size, got \(3, 2\) and \(4, 2\)"):
        wasserstein_assignment(np.ones((3, 2)), np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"got \(3, 2\) and \(3, 1\)"):
        wasserstein_sliced(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"projections must be at least 1, got 0"):
        wasserstein_sliced(eye, eye, projections=0)
    with pytest.raises(ValueError, match=r"got \(3, 2\) and \(2, 2\)"):
        kernel_stein_discrepancy(np.ones((3, 2)), eye)
    with pytest.raises(ValueError, match=r"beta must be above -1 and below 0, got 0\.5"):
        kernel_stein_discrepancy(eye, eye, beta=0.5)
    with pytest.raises(ValueError, match=r"c must be above 0, got 0"):
        kernel_stein_discrepancy(eye, eye, c=0)
