"""Whether a posterior predicts at all: its scores beside those of simple forecasts.

The forecasts are made from the held-out data themselves, each point from others, so that they need
no training data: class frequencies, or mean and standard deviation, from all other points; a linear
model from the other half.
"""

import warnings

import numpy as np
from scipy import stats

from csgmcmc.checks.evaluation import Array, Evaluation
from csgmcmc.checks.verdict import HELD_OUT, Advice, Numbers, Verdict, mean_interval, number

MIN_GAIN = 0.01  # over simple forecasts, in nats: per target, and relative to their NLL
MAX_LOSS = 10.0  # of one point, in nats, in the upper end of an interval
MIN_SHARE = 0.5  # of the gain of a linear model
LINEAR_WEIGHT = 0.99  # of the linear model in a mixture with the simple forecast
MAX_ROWS, MAX_FEATURES = 2000, 256  # of a linear model
NEAR = 0.1  # relative difference between a loss and that of guessing
MAX_SCALE = 30.0  # of inputs: a root mean square beyond it is named as a cause
NOT_LEARNED = "the network has not learned"


def check_learned(evaluation: Evaluation, numbers: Numbers) -> Verdict:
    """Whether the average beats forecasts that ignore the inputs, and what a line can do."""
    per_target = 1 / evaluation.targets_per_point
    ours = evaluation.average_scores * per_target
    simple = _simple_scores(evaluation) * per_target
    gains = ours - simple
    numbers["nll_simple"] = float(-simple.mean())
    what = "class frequencies" if evaluation.probs is not None else "mean and sd of the targets"
    least = MIN_GAIN * max(1.0 if evaluation.probs is None else 0.0, numbers["nll_simple"])
    found = mean_interval(gains)
    # A few impossible targets make the interval wide; without them the gain can only be larger.
    found = found._replace(high=min(found.high, mean_interval(np.maximum(gains, -MAX_LOSS)).high))
    words = f"NLL {number(-ours.mean())}, of {what} {number(numbers['nll_simple'])}"
    holds = found.within(least)
    reason = f"{words}: lower by {found} (at least {number(least)})"
    linear = _linear_scores(evaluation, simple) if holds else None
    if linear is None:
        if holds is None:
            reason += f": {found.needed(len(gains), HELD_OUT, least)}"
        return Verdict(holds, reason)
    rows, scores = linear
    numbers["nll_linear"] = float(-scores.mean())
    excess = mean_interval(gains[rows] - MIN_SHARE * (scores - simple[rows]))
    reason = f"{reason}; of a linear model {number(numbers['nll_linear'])}"
    if excess.high < 0 < float((scores - simple[rows]).mean()):
        share = gains[rows].mean() / (scores - simple[rows]).mean()
        return Verdict(False, f"{reason}, so that only {share:.0%} of its gain is reached")
    return Verdict(True, reason)


def _simple_scores(evaluation: Evaluation) -> Array:
    """Log-score of each data point by frequencies, or a Gaussian, of all the other targets."""
    targets, points = evaluation.targets, evaluation.log_scores.shape[1]
    if evaluation.probs is not None:
        classes = evaluation.probs.shape[1]
        counts = np.bincount(targets, minlength=classes)[targets]
        scores = np.log(counts / (len(targets) - 1 + classes))  # and one more of each class
        return np.bincount(evaluation.point_of_target, scores, minlength=points)
    values = targets.reshape(points, -1)
    others = max(points - 1, 1)
    means = (values.sum(0) - values) / others
    centred = values - values.mean(0)
    squares = (np.square(centred).sum(0) - np.square(centred)) / others
    variances = np.maximum(squares - np.square(means - values.mean(0)), 1e-12)
    return stats.norm.logpdf(values, means, np.sqrt(variances)).sum(1)


def _linear_scores(evaluation: Evaluation, simple: Array) -> tuple[Array, Array] | None:
    """Rows, and the log-score of each by a linear model of the other half of the rows.

    None where inputs are no table, or points of a classifier have several targets.
    """
    inputs, points = evaluation.inputs, evaluation.log_scores.shape[1]
    one_each = len(evaluation.targets) == points
    if inputs is None or inputs.shape[1] > MAX_FEATURES or points < 20:
        return None
    if not np.isfinite(inputs).all() or (evaluation.probs is not None and not one_each):
        return None
    rows = np.arange(points)[:MAX_ROWS]
    x = inputs[rows] - inputs[rows].mean(0)
    spread = x.std(0)
    x /= np.where(spread > 0, spread, 1.0)
    targets = evaluation.targets.reshape(points, -1)[rows]
    scores = np.zeros(len(rows))
    halves = rows % 2 == 0
    for known in (halves, ~halves):
        fit = _classes if evaluation.probs is not None else _numbers
        scores[~known] = fit(x[known], targets[known], x[~known], targets[~known])
    mixed = np.logaddexp(np.log(LINEAR_WEIGHT) + scores, np.log1p(-LINEAR_WEIGHT) + simple[rows])
    return rows, mixed / evaluation.targets_per_point


def _classes(x: Array, y: Array, other_x: Array, other_y: Array) -> Array:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415  (slow to import)

    labels, others = y[:, 0], other_y[:, 0]
    if len(set(labels.tolist())) < 2:
        return np.where(others == labels[0], 0.0, -np.inf)
    with warnings.catch_warnings(action="ignore"):  # a fit that has not converged will do
        fitted = LogisticRegression(max_iter=100).fit(x, labels)
    log_probs = fitted.predict_log_proba(other_x)
    columns = np.searchsorted(fitted.classes_, others).clip(max=len(fitted.classes_) - 1)
    found = log_probs[np.arange(len(others)), columns]
    return np.where(fitted.classes_[columns] == others, found, -np.inf)


def _numbers(x: Array, y: Array, other_x: Array, other_y: Array) -> Array:
    ridge = np.eye(x.shape[1])
    weights = np.linalg.solve(x.T @ x + ridge, x.T @ (y - y.mean(0)))
    degrees = max(len(x) - x.shape[1] - 1, len(x) / 4)
    spread = np.sqrt(np.square(y - y.mean(0) - x @ weights).sum(0) / degrees) + 1e-9
    return stats.norm.logpdf(other_y, y.mean(0) + other_x @ weights, spread).sum(1)


def causes(evaluation: Evaluation, problems: Advice, loss: float | None) -> Advice:
    """Likely causes of a network that has not learned, those with evidence first.

    Args:
        evaluation: of the held-out data.
        problems: what the run was warned of.
        loss: NLL of batches of training data under the last draw, per target, if it is known.
    """
    found: Advice = []
    scale = evaluation.input_scale
    if scale is not None and not 1 / MAX_SCALE < scale < MAX_SCALE:
        found.append(
            f"the inputs have a root mean square of {number(scale)}: scale them to about 1 "
            "(subtract the mean, divide by the standard deviation)"
        )
    found += problems
    if loss is not None and evaluation.probs is not None:
        chance = np.log(evaluation.probs.shape[1])
        if loss < chance / 2:
            found.append(
                f"the training loss is {number(loss)}, so that it has learned the training "
                "data: these held-out data differ from them, or there are too few for the network"
            )
        elif abs(loss / chance - 1) < NEAR:
            found.append(
                f"the training loss is {number(loss)}, that of guessing: the weights have "
                "not moved (lr too small, steps too few), or were thrown far away (lr too large)"
            )
    return [
        *found,
        "check the loop: zero_grad() before each backward(), batches in random order, an lr that "
        "csgmcmc.suggest_lr finds",
    ]
