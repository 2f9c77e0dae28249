import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_calibration_error,
)

from csgmcmc.diagnostics.calibration import (
    accuracy,
    brier_score,
    calibration_error,
    negative_log_likelihood,
    reliability_curve,
)

# Top classes 0, 1, 2, 0; the last is wrong. No label is 3.
PROBABILITIES = [
    [0.7, 0.1, 0.1, 0.1],
    [0.2, 0.5, 0.3, 0.0],
    [0.0, 0.0, 1.0, 0.0],
    [0.6, 0.3, 0.1, 0.0],
]
LABELS = [0, 1, 2, 1]
MEASURES = [negative_log_likelihood, brier_score, accuracy, calibration_error, reliability_curve]


@pytest.fixture(scope="module")
def forecast():
    """500 forecasts of 7 classes, labels with and without the forecast's help, none of them 6."""
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.full(7, 0.4), size=500)
    labels = np.where(
        generator.random(500) < 0.5, probabilities.argmax(axis=1), generator.integers(6, size=500)
    )
    return probabilities, np.where(labels == 6, 0, labels)


def test_by_hand():
    assert negative_log_likelihood(PROBABILITIES, LABELS) == pytest.approx(
        -np.log(0.7 * 0.5 * 1.0 * 0.3) / 4
    )
    assert brier_score(PROBABILITIES, LABELS) == pytest.approx((0.12 + 0.38 + 0 + 0.86) / 4)
    assert accuracy(PROBABILITIES, LABELS) == 3 / 4


def test_a_label_of_probability_zero_is_infinitely_unlikely():
    assert negative_log_likelihood(PROBABILITIES, [0, 3, 2, 1]) == np.inf


def test_the_brier_score_is_from_0_to_2():
    assert brier_score([[1.0, 0.0, 0.0]], [0]) == 0
    assert brier_score([[1.0, 0.0, 0.0]], [2]) == 2


def test_ties_go_to_the_lowest_class():
    even = [[0.25] * 4] * 4
    assert accuracy(even, [0, 1, 2, 3]) == 1 / 4
    assert accuracy([0.5, 0.5, 0.5], [0, 0, 1]) == pytest.approx(2 / 3)


def test_one_probability_a_point_is_that_of_class_1():
    binary, labels = np.array([0.9, 0.2, 0.6]), [1, 0, 0]
    assert negative_log_likelihood(binary, labels) == pytest.approx(-np.log(0.9 * 0.8 * 0.4) / 3)
    assert brier_score(binary, labels) == pytest.approx(2 * (0.01 + 0.04 + 0.36) / 3)
    assert accuracy(binary, labels) == pytest.approx(2 / 3)
    assert calibration_error(binary, labels, bins=1) == pytest.approx((0.9 + 0.8 + 0.6 - 2) / 3)
    both = np.stack([1 - binary, binary], axis=1)
    for measure in MEASURES[:-1]:
        assert measure(binary, labels) == measure(both, labels)
        assert measure(binary, np.array(labels, dtype=bool)) == measure(both, labels)


def test_equal_width_bins_by_hand():
    # Confidences 0.7, 0.5, 1, 0.6: bins (0.4, 0.6], (0.6, 0.8] and (0.8, 1], closed above.
    curve = reliability_curve(PROBABILITIES, LABELS, bins=5)
    np.testing.assert_allclose(curve.confidence, [0.55, 0.7, 1.0])
    np.testing.assert_array_equal(curve.accuracy, [0.5, 1.0, 1.0])
    np.testing.assert_array_equal(curve.count, [2, 1, 1])
    assert calibration_error(PROBABILITIES, LABELS, bins=5) == pytest.approx((2 * 0.05 + 0.3) / 4)


def test_a_confidence_of_1_is_in_the_last_bin():
    # 0.95 and wrong, 1 and right: in one bin the errors cancel.
    assert calibration_error([0.95, 1.0], [0, 1], bins=10) == pytest.approx(0.475)
    assert reliability_curve([0.95, 1.0], [0, 1], bins=10).count == [2]


@pytest.mark.parametrize("bins", [6, 25])  # where linspace is below 5 / 6, and 25 * 0.56 above 14
def test_a_confidence_on_an_edge_is_below_it_whatever_the_rounding(bins):
    edges = np.arange(bins // 2 + 1, bins + 1) / bins
    points = np.concatenate([edges, edges - 1e-3])
    curve = reliability_curve(points, np.ones(len(points), dtype=int), bins=bins)
    np.testing.assert_array_equal(curve.count, np.full(len(edges), 2))


def test_more_bins_than_points_is_one_point_a_bin():
    error = calibration_error([0.6, 0.8], [1, 0], bins=50)
    assert error == pytest.approx((0.4 + 0.8) / 2)


def test_against_the_peers(forecast):
    probabilities, labels = forecast
    tensors = torch.from_numpy(probabilities), torch.from_numpy(labels)
    classes = list(range(7))
    assert negative_log_likelihood(*forecast) == pytest.approx(
        log_loss(labels, probabilities, labels=classes)
    )
    assert brier_score(*forecast) == pytest.approx(
        brier_score_loss(labels, probabilities, labels=classes)
    )
    for bins in (7, 15):
        peer = multiclass_calibration_error(*tensors, num_classes=7, n_bins=bins, norm="l1")
        assert calibration_error(*forecast, bins=bins) == pytest.approx(peer.item(), rel=1e-5)
    peer = multiclass_accuracy(*tensors, num_classes=7, average="micro")
    assert accuracy(*forecast) == pytest.approx(peer.item(), rel=1e-5)


def test_single_and_half_precision_are_taken(forecast):
    probabilities, labels = forecast
    exact = brier_score(*forecast)
    assert brier_score(probabilities.astype(np.float32), labels) == pytest.approx(exact, rel=1e-5)
    assert brier_score(probabilities.astype(np.float16), labels) == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([[[0.5, 0.5]]], [0], r"axes \(n, K\).* got shape \(1, 1, 2\)"),
        ([], [], r"none empty, got shape \(0, 2\)"),
        ([[0.5, np.nan]], [0], "not contain nan, got 1"),
        ([[0.5, 0.6]], [0], r"sum to 1 .* got a sum of 1\.1"),
        ([[1.5, -0.5]], [0], r"at least 0, got -0\.5"),
        ([0.5, 1.5], [0, 1], "probabilities must be at least 0"),
        ([0.5, -0.5], [0, 1], r"at least 0, got -0\.5"),
        ([[0.5, 0.5]], [0, 1], r"1 whole numbers, .* got shape \(2,\)"),
        ([[0.5, 0.5]], [[0]], r"1 whole numbers, .* got shape \(1, 1\)"),
        ([[0.5, 0.5]], [0.0], "got .* float64"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, 2], "from 0 to 1, got 2"),
        ([[0.5, 0.5], [0.5, 0.5]], [0, -1], "from 0 to 1, got -1"),
    ],
)
def test_bad_forecasts_and_labels(measure, probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        measure(probabilities, labels)


def test_bad_settings():
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        calibration_error(PROBABILITIES, LABELS, bins=0)
