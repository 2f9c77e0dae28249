"""Whether probabilities are right: temperature scaling, calibration error, coverage of intervals.

Targets of one example, such as pixels or tokens, are not independent. All errors here are of sums
over the targets of an example, and examples are taken as independent.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from csgmcmc.checks.evaluation import Array, Evaluation
from csgmcmc.checks.verdict import HELD_OUT, LEVEL, Advice, Interval, Numbers, Verdict, number

Points = NDArray[np.int64]

MAX_SCALING = 1.5  # factor by which the temperature that scales predictions right may be off
MAX_ECE = 0.02  # calibration error beyond that by chance
BINS = 15
NULL_DRAWS = 4000  # of the calibration error of calibrated predictions
MIN_COVERAGE, MAX_COVERAGE = 0.85, 0.95  # of 90% intervals
MAX_LOG_BETA = 4.0  # of a temperature that is looked for
ITERATIONS = 30


def check_calibration(evaluation: Evaluation, numbers: Numbers, advice: Advice) -> Verdict:
    """Whether probabilities of classes, or predictive intervals of numbers, are right."""
    if evaluation.probs is None:
        return _check_coverage(evaluation, numbers, advice)
    probs, labels, points = evaluation.probs, evaluation.targets, evaluation.point_of_target
    logs = np.log(np.maximum(probs, 1e-300))
    scaling = fit_temperature(logs, labels, points)
    numbers["temperature_scaling"] = scaling.value
    numbers["nll_scaled"] = float(-scaled_scores(logs, labels, scaling.value).mean())
    numbers["ece"], numbers["ece_by_chance"] = ece_and_chance(probs, labels, points)
    holds = scaling.within(1 / MAX_SCALING, MAX_SCALING)
    if numbers["ece"] > numbers["ece_by_chance"] + MAX_ECE:
        holds = False
    words = (
        f"calibration error {numbers['ece']:.3f} ({numbers['ece_by_chance']:.3f} by chance); right "
        f"if scaled by a temperature of {scaling} ({number(1 / MAX_SCALING)} to {MAX_SCALING}), "
        f"then NLL {number(numbers['nll_scaled'])}"
    )
    if holds is None:
        examples = evaluation.log_scores.shape[1]
        needed = scaling.needed(examples, HELD_OUT, 1 / MAX_SCALING, MAX_SCALING)
        return Verdict(None, f"{words}: {needed}")
    if not holds:
        advice.append(
            "overconfident: more cycles, or a higher temperature, make it less confident"
            if scaling.value > 1
            else "underconfident: more steps, a lower temperature or a narrower prior make it "
            "more confident"
        )
    return Verdict(holds, words)


def fit_temperature(logs: Array, labels: Points, points: Points) -> Interval:
    """The temperature T for which p^(1/T), normalised, has the highest likelihood.

    The interval is that of the logarithm of 1 / T, with the sandwich estimate of the variance: of
    sums over the targets of each point. Its degrees of freedom count the points that matter: those
    of few mistakes are few.
    """
    log_beta, score, information = 0.0, np.zeros(1), 1.0
    chosen = logs[np.arange(len(labels)), labels]
    for _ in range(ITERATIONS):
        beta = math.exp(log_beta)
        weights = beta * logs
        weights = np.exp(weights - weights.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        means = (weights * logs).sum(1)
        score = beta * (chosen - means)
        information = beta**2 * float(((weights * logs**2).sum(1) - means**2).sum()) + 1e-12
        step = float(np.clip(score.sum() / information, -0.5, 0.5))
        bounded = float(np.clip(log_beta + step, -MAX_LOG_BETA, MAX_LOG_BETA))
        if abs(bounded - log_beta) < 1e-6:
            break
        log_beta = bounded
    squares = np.square(np.bincount(points, score))
    variance = max(float(squares.sum()), information)
    degrees = max(1.0, float(squares.sum()) ** 2 / max(float(np.square(squares).sum()), 1e-300))
    error = math.sqrt(variance) / information * float(stats.t.ppf((1 + LEVEL) / 2, degrees))
    error = min(error, 2 * MAX_LOG_BETA)  # of probabilities that are all equal, or all right
    return Interval(*(math.exp(-log_beta + shift) for shift in (0.0, -error, error)))


def scaled_scores(logs: Array, labels: Points, temperature: float) -> Array:
    """Log-likelihood of each label under probabilities scaled by a temperature."""
    scaled = logs / temperature
    return scaled[np.arange(len(labels)), labels] - np.logaddexp.reduce(scaled, axis=1)


def ece_and_chance(probs: Array, labels: Points, points: Points) -> tuple[float, float]:
    """The calibration error, and the 0.99 quantile of that of calibrated probabilities.

    Bins hold equal numbers of targets. In each, the sum of confidence minus accuracy is about
    normal; its covariance is that of sums over points where these have several targets, and at
    least that of independent targets, p (1 - p).
    """
    confidence = probs.max(1)
    ranks = np.searchsorted(np.sort(confidence), confidence, side="left")
    bins = ranks * BINS // len(ranks)
    excess = confidence - (probs.argmax(1) == labels)
    sums = np.bincount(bins, excess, minlength=BINS)
    covariance = np.diag(np.bincount(bins, confidence * (1 - confidence), minlength=BINS))
    generator, factor = np.random.default_rng(0), np.ones(1)
    examples = int(points[-1]) + 1
    if len(points) > examples:
        keys = points * BINS + bins
        by_point = np.bincount(keys, excess, minlength=examples * BINS).reshape(examples, BINS)
        by_point -= by_point.mean(0)  # what the bin is off on average is no chance
        clustered = by_point.T @ by_point * (examples / max(examples - 1, 1))
        ratios = np.diag(clustered) / np.maximum(np.diag(covariance), 1e-12)
        shrink = np.sqrt(np.maximum(1.0, 1 / np.maximum(ratios, 1e-12)))
        covariance = clustered * shrink * shrink[:, None]
        degrees = max(examples - 1, 1)
        factor = np.sqrt(degrees / generator.chisquare(degrees, (NULL_DRAWS, 1)))
    values, vectors = np.linalg.eigh(covariance)
    normal = generator.standard_normal((NULL_DRAWS, BINS)) * np.sqrt(np.maximum(values, 0))
    errors = np.abs(factor * (normal @ vectors.T)).sum(1) / len(labels)
    return float(np.abs(sums).sum() / len(labels)), float(np.quantile(errors, LEVEL))


def _check_coverage(evaluation: Evaluation, numbers: Numbers, advice: Advice) -> Verdict:
    """Whether 90% intervals contain 90% of the targets."""
    ranks = evaluation.ranks
    assert ranks is not None  # noqa: S101  (classes or numbers)
    inside = ((ranks >= 0.05) & (ranks <= 0.95)).mean(1)
    numbers["coverage_90"] = float(inside.mean())
    # By points: the outputs of one are dependent. Wilson's interval, of as many points as have the
    # same variance, is also right where all or none of the targets are inside.
    spread = float(inside.var())
    count = len(inside) * (min(0.09 / spread, ranks.shape[1]) if spread else 1.0)
    low, high = _wilson(numbers["coverage_90"], count)
    covered = Interval(numbers["coverage_90"], low, high)
    holds = covered.within(MIN_COVERAGE, MAX_COVERAGE)
    words = f"90% intervals contain {low:.1%} to {high:.1%} of targets (85% to 95%)"
    if holds is None:
        needed = covered.needed(len(inside), HELD_OUT, MIN_COVERAGE, MAX_COVERAGE)
        return Verdict(None, f"{words}: {needed}")
    if not holds:
        too = "narrow" if covered.high < MIN_COVERAGE else "wide"
        advice.append(
            f"the predictive intervals are too {too}: check the variance of the noise, then the "
            "temperature"
        )
    return Verdict(holds, words)


def _wilson(share: float, count: float) -> tuple[float, float]:
    z = float(stats.norm.ppf((1 + LEVEL) / 2))
    centre = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, centre - half), min(1.0, centre + half)
