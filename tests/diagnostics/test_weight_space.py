import numpy as np
import pytest
import torch
from torchmetrics.functional import pairwise_cosine_similarity, pairwise_euclidean_distance

from csgmcmc.diagnostics.weight_space import (
    cosine_similarities,
    error_barrier,
    multidimensional_scaling,
    pairwise_distances,
)

TRIANGLE = [[0.0, 0.0], [3.0, 0.0], [0.0, 4.0]]
SIDES = [[0.0, 3.0, 4.0], [3.0, 0.0, 5.0], [4.0, 5.0, 0.0]]


def test_distances_by_hand():
    np.testing.assert_array_equal(pairwise_distances(TRIANGLE), SIDES)
    np.testing.assert_array_equal(pairwise_distances([[1.0, 2.0]]), [[0]])


def test_distances_of_close_points_far_from_0_keep_their_digits():
    points = np.array([[0.0], [1e-6], [3e-6]]) * [1.0, 0.0] + [0.0, 1e4]
    distances = pairwise_distances(points)
    np.testing.assert_allclose(distances[0], [0, 1e-6, 3e-6])


def test_cosines_by_hand():
    vectors = [[2.0, 0.0], [0.0, 0.5], [-3.0, 0.0], [1.0, 1.0]]
    half = 0.5**0.5
    exact = [[1, 0, -1, half], [0, 1, 0, half], [-1, 0, 1, -half], [half, half, -half, 1]]
    np.testing.assert_allclose(cosine_similarities(vectors), exact, atol=1e-15)


def test_cosines_of_parallel_vectors_do_not_pass_1():
    vectors = np.random.default_rng(0).normal(size=(50, 7))
    cosines = cosine_similarities(np.concatenate([vectors, 3.3 * vectors, -vectors]))
    assert cosines.max() == 1
    assert cosines.min() == -1


def test_against_torchmetrics():
    points = np.random.default_rng(1).normal(size=(9, 20))
    tensor = torch.from_numpy(points)
    distances = pairwise_euclidean_distance(tensor).numpy()
    np.testing.assert_allclose(pairwise_distances(points), distances, atol=1e-6)
    cosines = pairwise_cosine_similarity(tensor, zero_diagonal=False).numpy()
    np.testing.assert_allclose(cosine_similarities(points), cosines, atol=1e-12)


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


def test_bad_points():
    for measure in (pairwise_distances, cosine_similarities):
        with pytest.raises(ValueError, match=r"points must have axes \(n, d\).* shape \(2,\)"):
            measure([1.0, 2.0])
        with pytest.raises(ValueError, match="points must be finite, got nan"):
            measure([[1.0, np.nan]])
    with pytest.raises(ValueError, match="no direction, got 0 at row 1"):
        cosine_similarities([[1.0, 1.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("distances", "message"),
    [
        ([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]], r"a square of at least 2 rows, got shape \(2, 3\)"),
        ([[0.0]], r"a square of at least 2 rows, got shape \(1, 1\)"),
        ([[0.0, -1.0], [-1.0, 0.0]], r"got a least of -1\.0"),
        ([[1.0, 1.0], [1.0, 0.0]], r"a diagonal of up to 1\.0"),
        ([[0.0, 1.0], [1.5, 0.0]], r"an asymmetry of up to 0\.5"),
        ([[0.0, np.inf], [np.inf, 0.0]], "finite, got inf"),
    ],
)
def test_bad_distances(distances, message):
    with pytest.raises(ValueError, match=message):
        multidimensional_scaling(distances)


def test_bad_dimensions_and_paths():
    with pytest.raises(ValueError, match="dimensions must be at least 1, got 0"):
        multidimensional_scaling(SIDES, dimensions=0)
    with pytest.raises(ValueError, match="at least the two ends, got 1"):
        error_barrier([0.1])
    with pytest.raises(ValueError, match="errors must be finite, got nan"):
        error_barrier([0.1, np.nan, 0.1])
