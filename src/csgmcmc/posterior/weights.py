"""Weights of draws: by the harmonic mean of likelihoods, or by held-out log score.

All functions take plain arrays and return a weight for each draw; the weights sum to 1. The draws
of a *group*, usually a cycle, share its weight equally; a draw of group -1 gets weight 0.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from csgmcmc.arguments import check_number
from csgmcmc.diagnostics.arrays import check_numbers

Weights = NDArray[np.float64]

MAX_STEPS = 10_000  # of EM
MAX_GAP = 1e-4  # nats of mean log score between stacking weights and the best


def harmonic_weights(
    log_likelihoods: ArrayLike, groups: ArrayLike, *, temperature: float = 1.0
) -> Weights:
    """Weigh groups by the harmonic mean of their draws' likelihoods, as Zhang et al. 2020 do.

        w_m = [ 1/K_m * sum_j 1 / p(data | theta_j)^(1/T) ]^-1,    in log space.

    For draws from the posterior within a region this estimates the region's evidence relative to
    its prior mass: the posterior mass of the region only if all regions have the same prior mass.
    The draw with the smallest likelihood dominates the mean, and its variance is usually infinite:
    log-likelihoods of networks differ by far more than 1 between cycles, so that one cycle gets
    most or all of the weight.
    """
    check_number("temperature", temperature, above=0)
    values, labels, names = _paired(log_likelihoods, groups, "log_likelihoods")
    inverse = -values / temperature
    return _spread(labels, {one: -log_mean(inverse[labels == one]) for one in names})


def stacking_weights(
    log_scores: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    point_weights: ArrayLike | None = None,
    smoothing: float = 0.0,
) -> Weights:
    """Weights that maximise the log score of the averaged prediction on held-out data.

        max_w  sum_i log sum_m w_m p_m(y_i),    w on the simplex        (Yao et al. 2018)

    with p_m the average prediction of a group, or that of a single draw. The problem is convex; the
    mean log score is at most 1e-4 nats below the best.

    Args:
        log_scores: log-likelihood of each held-out point under each draw, of shape (draws, points).
        groups: number of the group of each draw; by default every draw is weighed by itself.
        point_weights: how much each held-out point counts; by default all count the same.
        smoothing: c of a Dirichlet(1 + c) prior on the weights of the groups: each counts as if it
            had been the best for c points. With few points, some smoothing keeps one group from
            getting all the weight by chance.
    """
    check_number("smoothing", smoothing, at_least=0)
    scores = check_numbers("log_scores", log_scores)
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise ValueError(f"log_scores must have shape (draws, points), got {scores.shape}")
    points = np.ones(scores.shape[1])
    if point_weights is not None:
        points = check_numbers("point_weights", point_weights)
    if points.shape != scores.shape[1:] or not (points >= 0).all() or not points.any():
        raise ValueError("point_weights must be one number for each point, at least 0, not all 0")
    labels = np.arange(len(scores)) if groups is None else groups
    _, labels, names = _paired(scores[:, 0], labels, "log_scores")
    grouped = np.stack([log_mean(scores[labels == name]) for name in names])
    best = grouped.max(axis=0)
    if not np.isfinite(best).all():
        raise ValueError("a held-out point has likelihood 0 under every draw: no weights help it")
    likelihoods, shares_of_points = np.exp(grouped - best), points / points.sum()
    shares = _maximise(likelihoods, shares_of_points, smoothing / points.sum())
    with np.errstate(divide="ignore"):
        return _spread(labels, dict(zip(names, np.log(shares), strict=True)))


def _maximise(likelihoods: NDArray[np.float64], points: Weights, prior_count: float) -> Weights:
    """The best shares for likelihoods of shape (groups, points), scaled point by point.

    `points` are the weights of the points, whose sum is 1, and `prior_count` is relative to it.
    """
    count = len(likelihoods)

    def loss(shares: Weights) -> tuple[float, Weights]:
        # The sum of the shares as a penalty replaces the constraint: the maximum is the same.
        mixed = np.maximum(shares @ likelihoods, 1e-300)
        return shares.sum() - points @ np.log(mixed), 1 - likelihoods @ (points / mixed)

    start, bounds = np.full(count, 1 / count), [(0.0, None)] * count
    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-14, "gtol": MAX_GAP / 10}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    shares = found.x / found.x.sum() + prior_count
    for _ in range(MAX_STEPS):
        shares /= shares.sum()
        # The objective is concave: no shares are better by more than this gap.
        gains = likelihoods @ (points / (shares @ likelihoods))
        if prior_count:
            gains += prior_count / shares
        if gains.max() - shares @ gains <= MAX_GAP:
            break
        shares = shares * gains  # a step of EM
    return shares


def log_mean(log_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of the mean over the first axis of exp(log_values)."""
    return np.logaddexp.reduce(log_values, axis=0) - math.log(len(log_values))


def _paired(
    values: ArrayLike, groups: ArrayLike, name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], list[int]]:
    """Values and groups of the draws, checked, and the groups that there are."""
    numbers, labels = check_numbers(name, values), check_numbers("groups", groups)
    if numbers.ndim != 1 or labels.shape != numbers.shape:
        raise ValueError(
            f"{name} and groups must have one entry for each draw, got shapes {numbers.shape} and "
            f"{labels.shape}"
        )
    if not (labels >= 0).any():
        raise ValueError("groups must have a draw in some group, got only -1")
    return numbers, labels, [int(label) for label in np.unique(labels) if label >= 0]


def _spread(labels: NDArray[np.float64], log_weights: Mapping[int, Any]) -> Weights:
    """The groups' weights, normalised and divided equally among the draws of each."""
    total = np.logaddexp.reduce(list(log_weights.values()))
    if not math.isfinite(total):
        raise ValueError(f"no group has a weight above 0 that is finite: {log_weights}")
    weights = np.zeros(len(labels))
    for label, log_weight in log_weights.items():
        own = labels == label
        weights[own] = math.exp(float(log_weight) - total) / own.sum()
    return weights / weights.sum()
