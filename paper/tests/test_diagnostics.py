"""Diagnostics of the experiments, by hand and against slow formulas."""

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from torchmetrics.functional import pairwise_euclidean_distance

from paper.diagnostics import (
    error_barrier,
    in_mode_mass,
    mcse,
    mode_coverage,
    mode_total_variation,
    multidimensional_scaling,
    pairwise_distances,
    reference_ess,
    top_k_accuracy,
)

# Statistical tests fail by chance once in 150,000 times: 4.5 standard errors.
SIGMAS = 4.5


def ar1(phi: float, n: int, chains: int) -> np.ndarray:
    """Stationary chains (n, chains) of mean 0 and variance 1 with autocorrelations phi^s."""
    noise = np.random.default_rng(3).normal(size=(n, chains))
    noise[1:] *= (1 - phi**2) ** 0.5
    return np.asarray(lfilter([1.0], [1.0, -phi], noise, axis=0))


def slow_reference_ess(x: np.ndarray, mean: float, variance: float, truncate: bool) -> float:
    n = len(x)
    total = 0.0
    for s in range(1, n):
        products = sum((x[b] - mean) * (x[b - s] - mean) for b in range(s, n))
        rho = products / (variance * (n - s))
        if truncate and rho < 0.05:
            break
        total += (1 - s / n) * rho
    return n / (1 + 2 * total)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("n", [2, 3, 50])
def test_reference_ess_is_the_formula(n, truncate):
    draws = ar1(0.8, n, chains=2) * [1.0, 3.0] + [0.0, 5.0]
    mean, variance = np.array([0.1, 4.8]), np.array([1.2, 8.0])
    slow = [
        slow_reference_ess(draws[:, i], mean[i], variance[i], truncate) for i in range(len(mean))
    ]
    np.testing.assert_allclose(reference_ess(draws, mean, variance, truncate=truncate), slow)
    one = reference_ess(draws[:, 1], mean[1], variance[1], truncate=truncate)
    assert one.shape == ()
    assert one == pytest.approx(slow[1])


def test_untruncated_reference_ess_is_known_from_two_moments():
    draws, mean, variance = ar1(0.9, 1000, chains=5), 0.2, 1.3
    n, distance = len(draws), (draws.mean(axis=0) - mean) ** 2
    second_moment = ((draws - mean) ** 2).mean(axis=0)
    exact = n / (1 + n * distance / variance - second_moment / variance)
    np.testing.assert_allclose(reference_ess(draws, mean, variance, truncate=False), exact)


def test_untruncated_reference_ess_can_exceed_the_draws_or_be_negative():
    swings = np.tile([1.0, -1.0], 50)  # mean 0, second moment 1
    assert reference_ess(swings, 0.0, 2.0, truncate=False) == pytest.approx(100 / (1 - 1 / 2))
    assert reference_ess(swings, 0.0, 0.5, truncate=False) == pytest.approx(100 / (1 - 2))


def test_truncated_reference_ess_of_an_autoregression():
    n, phi = 100_000, 0.3  # lags 1 and 2 are 10 standard errors above 0.05, lag 3 is 6 below
    ess = reference_ess(ar1(phi, n, chains=20), 0.0, 1.0, truncate=True)
    exact = n / (1 + 2 * ((1 - 1 / n) * phi + (1 - 2 / n) * phi**2))
    assert abs(ess.mean() - exact) < SIGMAS * ess.std(ddof=1) / len(ess) ** 0.5


def test_truncated_reference_ess_is_near_that_of_all_lags():
    n, phi = 50_000, 0.9  # the lags below 0.05 are 5% of the sum, chance makes 1%
    ess = reference_ess(ar1(phi, n, chains=20), 0.0, 1.0, truncate=True)
    assert ess.mean() == pytest.approx(n * (1 - phi) / (1 + phi), rel=0.1)


def test_mcse_of_an_autoregression():
    n, phi = 50_000, 0.7
    chains = ar1(phi, n, chains=12).T.reshape(4, 3, n).transpose(0, 2, 1)  # 4 chains, 3 dimensions
    np.testing.assert_allclose(mcse(chains), (4 * n * (1 - phi) / (1 + phi)) ** -0.5, rtol=0.05)


def test_top_k_accuracy_by_hand():
    probabilities = [[0.7, 0.1, 0.1, 0.1], [0.2, 0.5, 0.3, 0.0], [0.0, 0.0, 1.0, 0.0]]
    probabilities += [[0.6, 0.3, 0.1, 0.0]]
    assert top_k_accuracy(probabilities, [0, 1, 2, 1], 1) == 3 / 4
    assert top_k_accuracy(probabilities, [0, 1, 2, 1], 2) == 1
    assert top_k_accuracy(probabilities, [1, 2, 0, 2], 2) == 3 / 4
    even = np.full((4, 4), 0.25)
    assert top_k_accuracy(even, [0, 1, 1, 3], 2) == 3 / 4  # ties go to the lowest class


MODES = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]
# 5 draws at the first mode, 3 near the second but one of them outside radius 1, none at the third.
DRAWS = [[0.0, 0.5]] * 5 + [[10.0, 0.9], [10.9, 0.0], [10.0, 1.1]]


def test_mode_coverage():
    assert mode_coverage(DRAWS, MODES, radius=1.0, more_than=1) == 2
    assert mode_coverage(DRAWS, MODES, radius=1.0, more_than=2) == 1  # "more than", not "at least"
    assert mode_coverage(DRAWS, MODES, radius=1.2, more_than=2) == 2
    assert mode_coverage(DRAWS, MODES, radius=1.0, more_than=5) == 0


def test_in_mode_mass():
    assert in_mode_mass(DRAWS, MODES, radius=1.0) == pytest.approx(7 / 8)
    assert in_mode_mass(DRAWS, MODES, radius=0.4) == 0


def test_total_variation_against_equal_and_given_weights():
    assert mode_total_variation(DRAWS, MODES) == pytest.approx(1 / 3)
    assert mode_total_variation(DRAWS, MODES, [5 / 8, 3 / 8, 0]) == pytest.approx(0)
    assert mode_total_variation(DRAWS, MODES, [0, 0, 1]) == pytest.approx(1)


def test_exact_draws_have_the_known_mass_within_three_sigma():
    draws = np.random.default_rng(0).normal(size=(200_000, 2))
    exact = 1 - np.exp(-9 / 2)
    standard_error = (exact * (1 - exact) / len(draws)) ** 0.5
    assert abs(in_mode_mass(draws, [[0.0, 0.0]], radius=3.0) - exact) < 4.5 * standard_error


TRIANGLE = [[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]
SIDES = [[0.0, 3.0, 4.0], [3.0, 0.0, 5.0], [4.0, 5.0, 0.0]]


def test_distances_by_hand():
    np.testing.assert_array_equal(pairwise_distances(TRIANGLE), SIDES)
    np.testing.assert_array_equal(pairwise_distances([[1.0, 2.0]]), [[0]])


def test_distances_of_close_points_far_from_0_keep_their_digits():
    points = np.array([[0.0], [1e-6], [3e-6]]) * [1.0, 0.0] + [0.0, 1e4]
    distances = pairwise_distances(points)
    np.testing.assert_allclose(distances[0], [0, 1e-6, 3e-6])


def test_against_torchmetrics():
    points = np.random.default_rng(1).normal(size=(9, 20))
    tensor = torch.from_numpy(points)
    distances = pairwise_euclidean_distance(tensor).numpy()
    np.testing.assert_allclose(pairwise_distances(points), distances, atol=1e-6)


def test_scaling_recovers_points_of_a_plane_in_many_dimensions():
    generator = np.random.default_rng(2)
    plane, _ = np.linalg.qr(generator.normal(size=(500, 2)))
    distances = pairwise_distances(generator.normal(size=(12, 2)) @ plane.T + 3)
    placed = multidimensional_scaling(distances)
    assert placed.shape == (12, 2)
    np.testing.assert_allclose(pairwise_distances(placed), distances, atol=1e-10)
    np.testing.assert_array_equal(multidimensional_scaling(distances), placed)


def test_scaling_recovers_points_of_the_plane_up_to_rotation():
    points = np.random.default_rng(3).normal(size=(20, 2)) * [3.0, 1.0] + 5
    placed = multidimensional_scaling(pairwise_distances(points))
    # The exact answer: the centred points along their principal axes.
    centred = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ axes.T
    expected *= np.sign(expected[np.abs(expected).argmax(axis=0), [0, 1]])
    np.testing.assert_allclose(placed, expected, atol=1e-10)


def test_scaling_fixes_the_signs():
    placed = multidimensional_scaling(SIDES)
    assert (placed[np.abs(placed).argmax(axis=0), [0, 1]] > 0).all()


def test_scaling_of_a_triangle_is_centred_along_its_principal_axes():
    placed = multidimensional_scaling(SIDES)
    np.testing.assert_allclose(placed.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(placed[:, 0] @ placed[:, 1], 0, atol=1e-12)
    assert np.var(placed[:, 0]) > np.var(placed[:, 1])


def test_one_dimension_of_a_square_is_its_share_of_the_squared_distances():
    # A 2 by 1 rectangle: the long side is kept, the short one lost.
    corners = [[0.0, 0.0], [2.0, 0.0], [0.0, 1.0], [2.0, 1.0]]
    placed = multidimensional_scaling(pairwise_distances(corners), dimensions=1)
    np.testing.assert_allclose(np.sort(placed[:, 0]), [-1, -1, 1, 1])


def test_dimensions_that_the_points_do_not_have_are_0():
    line = pairwise_distances(np.arange(5.0)[:, None])
    placed = multidimensional_scaling(line, dimensions=4)
    np.testing.assert_allclose(pairwise_distances(placed[:, :1]), line)
    np.testing.assert_allclose(placed[:, 1:], 0, atol=1e-6)
    np.testing.assert_array_equal(multidimensional_scaling(np.zeros((3, 3))), np.zeros((3, 2)))
    # Not Euclidean: the centre of a star is nearer to all its points than a plane allows.
    star = 2.0 - 2 * np.eye(4)
    star[0, 1:] = star[1:, 0] = 1
    placed = multidimensional_scaling(star, dimensions=4)
    np.testing.assert_allclose(pairwise_distances(placed)[1:, 1:], star[1:, 1:])
    np.testing.assert_array_equal(placed[:, 3], 0)


def test_barriers_by_hand():
    assert error_barrier([0.1, 0.1, 0.9, 0.2, 0.1]) == pytest.approx(0.8)
    assert error_barrier([0.0, 0.5, 0.4]) == pytest.approx(0.3)  # above the line, 0.2 there
    assert error_barrier([0.0, 0.25, 0.5, 0.75, 1.0]) == 0
    assert error_barrier([0.3, 0.1, 0.0, 0.2]) == 0  # a valley is no barrier
    assert error_barrier([0.3, 0.1]) == 0
