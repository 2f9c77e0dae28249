import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_average_precision,
    binary_specificity_at_sensitivity,
)

from csgmcmc.diagnostics.detection import (
    aupr,
    auroc,
    cumulative_distribution,
    fpr_at,
    risk_coverage,
)

INSIDE, OUTSIDE = [1.0, 2.0, 3.0, 4.0], [2.5, 3.0, 5.0]


def test_by_hand():
    # Of the 12 pairs the outside is above in 2 + 2 + 4, and one is a tie.
    assert auroc(INSIDE, OUTSIDE) == pytest.approx(8.5 / 12)
    # From the top: 5 outside, 4 inside, the two 3s together, 2.5 outside.
    assert aupr(INSIDE, OUTSIDE) == pytest.approx((1 / 1 + 2 / 4 + 3 / 5) / 3)


def test_perfect_useless_and_inverted_scores():
    low, high = [0.0, 1.0], [2.0, 3.0, 4.0]
    assert (auroc(low, high), aupr(low, high), fpr_at(low, high)) == (1, 1, 0)
    assert auroc(high, low) == 0
    assert fpr_at(high, low) == 1
    assert auroc([1.0] * 4, [1.0]) == 0.5
    assert aupr([1.0] * 4, [1.0]) == pytest.approx(1 / 5)
    assert fpr_at([1.0] * 4, [1.0]) == 1


def test_false_positives_at_a_recall_by_hand():
    assert fpr_at(INSIDE, OUTSIDE, recall=1 / 3) == 0  # at 5
    assert fpr_at(INSIDE, OUTSIDE, recall=0.5) == 2 / 4  # at 3: the tie is flagged
    assert fpr_at(INSIDE, OUTSIDE, recall=2 / 3) == 2 / 4
    assert fpr_at(INSIDE, OUTSIDE) == 2 / 4  # at 2.5


def test_thresholds_on_a_straight_stretch_of_the_curve_are_not_lost():
    ties = [1.0, 2.0, 3.0]
    assert [fpr_at(ties, ties, recall) for recall in (0.3, 0.5, 0.7)] == [1 / 3, 2 / 3, 1]


def test_each_recall_has_its_own_threshold_with_no_rounding_up():
    # The k-th highest outside has k - 1 of the 100 inside at or above it.
    outside = np.arange(100.0)
    for k in range(1, 101):
        assert fpr_at(outside - 0.5, outside, recall=k / 100) == (k - 1) / 100


def test_against_torchmetrics():
    generator = np.random.default_rng(0)
    inside, outside = generator.beta(2, 3, size=300), generator.beta(3, 2, size=200)
    scores = torch.from_numpy(np.concatenate([inside, outside]))
    labels = torch.tensor([0] * 300 + [1] * 200)
    assert auroc(inside, outside) == pytest.approx(binary_auroc(scores, labels).item())
    peer = binary_average_precision(scores, labels).item()
    assert aupr(inside, outside) == pytest.approx(peer, rel=1e-5)
    for recall in (0.5, 0.8, 0.95):
        specificity, _ = binary_specificity_at_sensitivity(scores, labels, min_sensitivity=recall)
        assert fpr_at(inside, outside, recall) == pytest.approx(1 - specificity.item(), abs=1e-6)


def test_cumulative_distribution():
    values = [3.0, 1.0, 2.0, 2.0]
    shares = cumulative_distribution(values, [[0.9, 1.0, 1.5], [2.0, 3.0, np.inf]])
    np.testing.assert_array_equal(shares, [[0, 0.25, 0.25], [0.75, 1, 1]])
    assert cumulative_distribution(values, 2.0).shape == ()


def test_risk_and_coverage_by_hand():
    curve = risk_coverage([0.3, 0.1, 0.4, 0.2], [0, 0, 1, 1])  # in order: 0, 1, 0, 1
    np.testing.assert_array_equal(curve.coverage, [0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(curve.risk, [0, 1 / 2, 1 / 3, 1 / 2])
    assert curve.area == pytest.approx((1 / 2 + 1 / 3 + 1 / 2) / 4)
    losses = risk_coverage([2.0, 1.0], [0.5, 2.5])
    np.testing.assert_array_equal(losses.risk, [2.5, 1.5])


def test_tied_points_have_the_mean_area_of_all_their_orders():
    tied = risk_coverage([0.1, 0.5, 0.5, 0.5, 0.9], [0, 1, 0, 0, 1])
    orders = [risk_coverage(np.arange(5), [0, *middle, 1]) for middle in np.eye(3)]
    np.testing.assert_allclose(tied.risk, np.mean([order.risk for order in orders], axis=0))
    assert tied.area == pytest.approx(np.mean([order.area for order in orders]))
    moved = risk_coverage([0.9, 0.5, 0.5, 0.1, 0.5], [1, 0, 0, 0, 1])
    np.testing.assert_array_equal(moved.risk, tied.risk)


@pytest.mark.parametrize("measure", [auroc, aupr, fpr_at])
def test_bad_scores(measure):
    with pytest.raises(ValueError, match=r"inside must have axes \(n\).* got shape \(1, 2\)"):
        measure([[1.0, 2.0]], OUTSIDE)
    with pytest.raises(ValueError, match=r"outside must have .* none empty, got shape \(0,\)"):
        measure(INSIDE, [])
    with pytest.raises(ValueError, match="outside must be finite, got nan"):
        measure(INSIDE, [1.0, np.nan])


def test_bad_recalls_and_lengths():
    for recall in (0, 1.01, np.nan):
        with pytest.raises(ValueError, match=f"recall must be .* got {recall}"):
            fpr_at(INSIDE, OUTSIDE, recall)
    with pytest.raises(ValueError, match="one length, got 2 and 3"):
        risk_coverage([0.1, 0.2], [0, 1, 0])
    with pytest.raises(ValueError, match="uncertainty must be finite, got inf"):
        risk_coverage([0.1, np.inf], [0, 1])
    with pytest.raises(ValueError, match="values must be finite, got nan"):
        cumulative_distribution([np.nan], 1.0)
    with pytest.raises(ValueError, match="at must hold no nan, got 1 of them"):
        cumulative_distribution([1.0], [np.nan])
