"""Whether probabilities are right: temperature scaling, calibration error, coverage of intervals.

Targets of one example, such as pixels or tokens, are not independent. All errors here are of sums
over the targets of an example, and examples are taken as independent.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from csgmcmc.checks.evaluation import Array, Evaluation
from csgmcmc.checks.verdict import LEVEL, Interval, Numbers, Verdict, number

Points = NDArray[np.int64]

MAX_SCALING = 1.5  # factor by which the temperature that scales predictions right may be off
MAX_ECE = 0.02  # calibration error beyond that by chance
BINS = 15
NULL_DRAWS = 4000  # of the calibration error of calibrated predictions
MAX_GROUPS = 1000  # of examples, for these
MIN_COVERAGE, MAX_COVERAGE = 0.85, 0.95  # of 90% intervals
MAX_LOG_BETA = 4.0  # of a temperature that is looked for
ITERATIONS = 30


def check_calibration(evaluation: Evaluation, numbers: Numbers) -> Verdict:
    """Whether probabilities of classes, or predictive intervals of numbers, are right."""
    if evaluation.probs is None:
        return _check_coverage(evaluation, numbers)
    probs, labels, points = evaluation.probs, evaluation.targets, evaluation.point_of_target
    logs = np.log(np.maximum(probs, 1e-300))
    scaling = fit_temperature(logs, labels, points)
    numbers["temperature_scaling"] = scaling.value
    numbers["nll_scaled"] = float(-scaled_scores(logs, labels, scaling.value).mean())
    numbers["ece"], numbers["ece_by_chance"] = ece_and_chance(probs, labels, points)
    words = (
        f"calibration error {numbers['ece']:.3f} ({numbers['ece_by_chance']:.3f} by chance); right "
        f"if scaled by a temperature of {scaling} ({number(1 / MAX_SCALING)} to {MAX_SCALING}), "
        f"then NLL {number(numbers['nll_scaled'])}"
    )
    advice = "underconfident: more steps, a lower temperature or a narrower prior make it more "
    if scaling.value > 1:
        advice = "overconfident: more cycles, or a higher temperature, make it less "
    if numbers["ece"] > numbers["ece_by_chance"] + MAX_ECE:
        return Verdict(False, words, (f"{advice}confident",))
    bounds = 1 / MAX_SCALING, MAX_SCALING
    return scaling.judge(words, f"{advice}confident", int(points[-1]) + 1, *bounds)


def fit_temperature(logs: Array, labels: Points, points: Points) -> Interval:
    """The temperature T for which p^(1/T), normalised, has the highest likelihood.

    The interval is of log(1 / T), by the sandwich estimate of the variance, of sums over targets of
    a point. Its degrees of freedom count the points that matter, which may be a few mistakes.
    """
    log_beta, score, information = 0.0, np.zeros(1), 1.0
    chosen = logs[np.arange(len(labels)), labels]
    for _ in range(ITERATIONS):
        beta = math.exp(log_beta)
        weights = special.softmax(beta * logs, axis=1)
        means = (weights * logs).sum(1)
        score = beta * (chosen - means)
        information = beta**2 * float(((weights * logs**2).sum(1) - means**2).sum()) + 1e-12
        step = float(np.clip(score.sum() / information, -0.5, 0.5))
        before, log_beta = log_beta, float(np.clip(log_beta + step, -MAX_LOG_BETA, MAX_LOG_BETA))
        if abs(log_beta - before) < 1e-6:
            break
    squares = np.square(np.bincount(points, score))
    variance = max(float(squares.sum()), information)
    degrees = max(1.0, float(squares.sum()) ** 2 / max(float(np.square(squares).sum()), 1e-300))
    error = math.sqrt(variance) / information * float(stats.t.ppf((1 + LEVEL) / 2, degrees))
    error = min(error, 2 * MAX_LOG_BETA)  # of probabilities that are all equal, or all right
    return Interval(*(math.exp(-log_beta + shift) for shift in (0.0, -error, error)))


def scaled_scores(logs: Array, labels: Points, temperature: float) -> Array:
    """Log-likelihood of each label under probabilities scaled by a temperature."""
    scaled = special.log_softmax(logs / temperature, axis=1)
    return scaled[np.arange(len(labels)), labels]


def ece_and_chance(probs: Array, labels: Points, points: Points) -> tuple[float, float]:
    """The calibration error, and the 0.99 quantile of that of calibrated probabilities.

    Bins hold equal numbers of targets. In each, the sum of confidence minus accuracy is about
    normal, with the covariance of sums over examples, or groups of them, and at least the variance
    of independent targets, p (1 - p).
    """
    confidence = probs.max(1)
    ranks = np.searchsorted(np.sort(confidence), confidence, side="left")
    bins = ranks * BINS // len(ranks)
    groups = np.unique(points, return_inverse=True)[1] % MAX_GROUPS
    excess = confidence - (probs.argmax(1) == labels)
    by_group = np.zeros((int(groups.max()) + 1, BINS))
    np.add.at(by_group, (groups, bins), excess)
    found = float(np.abs(by_group.sum(0)).sum() / len(labels))
    by_group -= by_group.mean(0)  # what the bin is off on average is no chance
    least = np.bincount(bins, confidence * (1 - confidence), minlength=BINS)
    by_group *= np.sqrt(np.maximum(1.0, least / np.maximum(np.square(by_group).sum(0), 1e-12)))
    normal = np.random.default_rng(0).standard_normal((NULL_DRAWS, len(by_group)))
    errors = np.abs(normal @ by_group).sum(1) / len(labels)
    return found, float(np.quantile(errors, LEVEL))


def _check_coverage(evaluation: Evaluation, numbers: Numbers) -> Verdict:
    """Whether 90% intervals contain 90% of the targets."""
    ranks = evaluation.ranks
    assert ranks is not None  # noqa: S101  (classes or numbers)
    inside = ((ranks >= 0.05) & (ranks <= 0.95)).mean(1)
    numbers["coverage_90"] = float(inside.mean())
    # By points: the outputs of one are dependent. Wilson's interval, of as many points as have the
    # same variance, is also right where all or none of the targets are inside.
    spread = float(inside.var())
    count = round(len(inside) * (min(0.09 / spread, ranks.shape[1]) if spread else 1.0))
    hits = stats.binomtest(round(float(inside.mean()) * count), count)
    covered = Interval(float(inside.mean()), *hits.proportion_ci(LEVEL, method="wilson"))
    words = f"90% intervals contain {covered.low:.1%} to {covered.high:.1%} of targets (85% to 95%)"
    too = "narrow" if covered.high < MIN_COVERAGE else "wide"
    advice = f"the predictive intervals are too {too}: check the variance of the noise, then the "
    bounds = MIN_COVERAGE, MAX_COVERAGE
    return covered.judge(words, f"{advice}temperature", len(inside), *bounds)
