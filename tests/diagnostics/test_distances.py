import numpy as np
import pytest

from csgmcmc.diagnostics.mixing import (
    disagreement,
    within_and_between,
)

# Three draws on two points; the third excludes the second class on the first point.
MEMBERS = [
    [[0.5, 0.5], [0.8, 0.2]],
    [[0.25, 0.75], [0.8, 0.2]],
    [[1.0, 0.0], [0.2, 0.8]],
]


def test_disagreement_by_hand():
    np.testing.assert_array_equal(disagreement(MEMBERS), [[0, 0.5, 0.5], [0.5, 0, 1], [0.5, 1, 0]])
    np.testing.assert_array_equal(disagreement(MEMBERS[:1]), [[0]])


def test_groups_by_hand():
    matrix = np.arange(16.0).reshape(4, 4)  # not symmetric
    split = within_and_between(matrix, [5, 5, 5, 7])
    assert split.within == pytest.approx((1 + 2 + 4 + 6 + 8 + 9) / 6)
    assert split.between == pytest.approx((3 + 7 + 11 + 12 + 13 + 14) / 6)
    mixed = within_and_between(matrix, [1, 0, 1, 0])
    assert mixed.within == pytest.approx((2 + 7 + 8 + 13) / 4)
    assert mixed.between == pytest.approx((1 + 3 + 4 + 6 + 9 + 11 + 12 + 14) / 8)


def test_the_diagonal_is_left_out():
    assert within_and_between([[9.0, 1.0], [3.0, 9.0]], [0, 0]).within == 2


def test_groups_with_no_pairs_are_nan():
    alone = within_and_between([[0.0, 2.0], [4.0, 0.0]], [0, 1])
    assert np.isnan(alone.within)
    assert alone.between == 3
    assert np.isnan(within_and_between([[0.0, 2.0], [4.0, 0.0]], [0, 0]).between)


def test_bad_members():
    with pytest.raises(ValueError, match=r"members must have axes \(s, n, K\).* shape \(2, 2\)"):
        disagreement(MEMBERS[0])
    with pytest.raises(ValueError, match=r"members must sum to 1 .* a sum of 1\.2"):
        disagreement([[[0.5, 0.5], [0.6, 0.6]]])
    with pytest.raises(ValueError, match=r"members must be at least 0, got -0\.1"):
        disagreement([[[1.1, -0.1]]])
    with pytest.raises(ValueError, match="members must not contain nan"):
        disagreement([[[np.nan, 1.0]]])


def test_bad_matrices_and_groups():
    with pytest.raises(IndexError):
        within_and_between(np.zeros((2, 2)), [0, 0, 1])
    with pytest.raises(ValueError, match="matrix must not contain nan"):
        within_and_between([[0.0, np.nan], [1.0, 0.0]], [0, 1])
