import numpy as np
import pytest

from csgmcmc.diagnostics.calibration_by_simulation import calibration_ranks, rank_uniformity

REPEATS, DRAWS = 2000, 31
# A p-value below this comes up by chance once in 150,000 times, as 4.5 standard errors do.
SMALL = 7e-6


def conjugate_ranks(width: float) -> np.ndarray:
    """Ranks under posteriors `width` times too wide: prior N(0, 1), two data points of N(x, 1)."""
    rng = np.random.default_rng(0)
    truths = rng.normal(size=(REPEATS, 2))
    mean = (truths + rng.normal(size=truths.shape) / 2**0.5) * 2 / 3
    noise = rng.normal(size=(REPEATS, DRAWS, 2))
    return calibration_ranks(truths, mean[:, None] + width * noise / 3**0.5)


def test_ranks_count_the_draws_below():
    draws = [[[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]] * 2
    assert calibration_ranks([[0.0, 1.5], [2.5, 9.0]], draws).tolist() == [[0, 1], [2, 3]]


def test_ties_are_broken_evenly():
    repeats, ties = 4000, 3
    draws = np.tile([0.0, 1.0, 1.0, 1.0, 2.0], (repeats, 1))[..., None]
    counts = np.bincount(calibration_ranks(np.ones((repeats, 1)), draws)[:, 0], minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]
    p = 1 / (ties + 1)
    np.testing.assert_array_less(
        np.abs(counts[1:5] - repeats * p), 4.5 * (repeats * p * (1 - p)) ** 0.5
    )


@pytest.mark.parametrize("bins", [8, 10])  # 10 does not divide the 32 ranks
def test_the_exact_posterior_is_calibrated_and_others_are_not(bins):
    assert (rank_uniformity(conjugate_ranks(1.0), DRAWS, bins) > SMALL).all()
    assert (rank_uniformity(conjugate_ranks(0.8), DRAWS, bins) < SMALL).all()
    assert (rank_uniformity(conjugate_ranks(1.3), DRAWS, bins) < SMALL).all()


def test_p_value_of_known_counts():
    # 2 bins of 2 ranks, 50 repeats each expected: chi-square (10^2 + 10^2) / 50 = 4, 1 degree
    ranks = np.repeat([0, 1, 2, 3], [20, 20, 30, 30])
    even = np.repeat([0, 3], 50)
    p = rank_uniformity(np.column_stack([ranks, even]), draws_per_repeat=3, bins=2)
    np.testing.assert_allclose(p, [0.0455002639, 1.0], rtol=1e-7)
    # 5 ranks in 2 bins: 3 of them fall into the first, and 60 + 40 is as expected
    assert rank_uniformity(np.repeat(np.arange(5), 20)[:, None], 4, bins=2) == pytest.approx(1)


def test_p_values_are_uniform_where_bins_are_uneven():
    rng, repeats = np.random.default_rng(1), 2000
    p = rank_uniformity(rng.integers(0, 32, size=(500, repeats)), 31, bins=10)
    for level in (0.05, 0.5):
        error = (level * (1 - level) / repeats) ** 0.5
        assert abs((p < level).mean() - level) < 4.5 * error


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"got \(4, 2\) and \(4, 10, 3\)"):
        calibration_ranks(np.ones((4, 2)), np.ones((4, 10, 3)))
    with pytest.raises(ValueError, match=r"whole numbers \(repeats, d\), got float64 of \(4, 2\)"):
        rank_uniformity(np.ones((4, 2)), 10)
    with pytest.raises(ValueError, match=r"0 to draws_per_repeat = 10, got 0 to 11"):
        rank_uniformity(np.array([[0], [11]]), 10)
    with pytest.raises(ValueError, match=r"at least 5 repeats, got 40 repeats of 19 draws in 10"):
        rank_uniformity(np.zeros((40, 1), dtype=int), 19)
    with pytest.raises(ValueError, match=r"at least 5 repeats, got 400 repeats of 3 draws in 8"):
        rank_uniformity(np.zeros((400, 1), dtype=int), 3, bins=8)
