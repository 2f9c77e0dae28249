import numpy as np
import pytest

from csgmcmc.diagnostics import in_mode_mass, mode_counts, mode_coverage, mode_total_variation

MODES = [[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]
# 5 draws at the first mode, 3 near the second but one of them outside radius 1, none at the third.
DRAWS = [[0.0, 0.5]] * 5 + [[10.0, 0.9], [10.9, 0.0], [10.0, 1.1]]


def test_counts_and_coverage():
    assert list(mode_counts(DRAWS, MODES)) == [5, 3, 0]
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


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"\(3,\) and \(3, 2\)"):
        mode_counts([1.0, 2.0, 3.0], MODES)
