"""Accuracy, scores and calibration of class probabilities, and detection by uncertainty scores.

`probabilities` has shape (n, K), or (n,) for the probability of class 1 of two; `labels` are n
whole numbers, from 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score

from csgmcmc.arguments import check_count
from csgmcmc.diagnostics.arrays import check_numbers, check_probabilities, on_cpu


def negative_log_likelihood(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean of -log p(label).

    Infinite where a label has probability 0. Clipping it, as scikit-learn does, would make the
    result depend on the dtype.
    """
    forecast, truth = _check_forecast(probabilities, labels)
    with np.errstate(divide="ignore"):
        return float(-np.log(forecast[np.arange(len(truth)), truth]).mean())


def brier_score(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Mean over points of the sum over classes of (p - [class is the label])² (Brier 1950).

    From 0 to 2. Two classes are summed over like any others: twice the one-sided mean of
    (p - label)².
    """
    forecast, truth = _check_forecast(probabilities, labels)
    return float(((forecast - np.eye(forecast.shape[1])[truth]) ** 2).sum(axis=1).mean())


def accuracy(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Fraction of points whose top class is the label; ties go to the lowest class."""
    forecast, truth = _check_forecast(probabilities, labels)
    return float((forecast.argmax(axis=1) == truth).mean())


@dataclass(frozen=True)
class ReliabilityCurve:
    """Confidence and accuracy of the top class, in bins of confidence with any points."""

    confidence: NDArray[np.float64]  # mean probability of the top class in each bin
    accuracy: NDArray[np.float64]  # fraction of points in each bin whose top class is the label
    count: NDArray[np.int64]  # points in each bin


def reliability_curve(
    probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15
) -> ReliabilityCurve:
    """Accuracy against confidence, in bins of equal width (Guo et al. 2017).

    Bins are closed above, so that a confidence of 1 is in the last.
    """
    forecast, truth = _check_forecast(probabilities, labels)
    bins = check_count("bins", bins, at_least=1)
    confidence = forecast.max(axis=1)
    members = np.searchsorted(np.arange(1, bins) / bins, confidence, side="left")
    _, members, count = np.unique(members, return_inverse=True, return_counts=True)
    correct = forecast.argmax(axis=1) == truth
    sums = [np.bincount(members, weights=each) for each in (confidence, correct)]
    return ReliabilityCurve(sums[0] / count, sums[1] / count, count)


def calibration_error(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15) -> float:
    """Expected calibration error of the top class: sum over bins of count / n · |acc - conf|.

    Guo et al. 2017; for the bins see `reliability_curve`.
    """
    curve = reliability_curve(probabilities, labels, bins=bins)
    return float(np.average(np.abs(curve.accuracy - curve.confidence), weights=curve.count))


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """Probability that a point outside scores above one inside, ties counting half.

    How well an uncertainty score, such as predictive entropy, separates points inside the training
    distribution from others: the area under the ROC curve (Hendrycks & Gimpel 2017).
    """
    known, unknown = check_numbers("inside", inside, "n"), check_numbers("outside", outside, "m")
    is_outside = np.repeat([0, 1], [len(known), len(unknown)])
    return float(roc_auc_score(is_outside, np.concatenate([known, unknown])))


def _check_forecast(probabilities: ArrayLike, labels: ArrayLike) -> tuple[NDArray, NDArray]:
    """Probabilities of shape (n, K) and labels of shape (n,), checked."""
    forecast, truth = check_numbers("probabilities", probabilities), np.asarray(on_cpu(labels))
    if forecast.ndim == 1:
        forecast = np.stack([1 - forecast, forecast], axis=1)
    forecast = check_probabilities("probabilities", forecast, "n", "K")
    if truth.shape != (len(forecast),) or truth.dtype.kind not in "iub":
        raise ValueError(
            f"labels must be {len(forecast)} whole numbers, one for each point, "
            f"got shape {truth.shape} of {truth.dtype}"
        )
    classes = forecast.shape[1]
    for wrong in truth[(truth < 0) | (truth >= classes)]:
        raise ValueError(f"labels must be from 0 to {classes - 1}, got {wrong}")
    return forecast, truth.astype(np.int64)
