"""Whether a posterior predicts at all: its scores beside those of simple forecasts.

The forecasts are made from the held-out data themselves, each point from others, so that they need
no training data: class frequencies, or mean and standard deviation, from all other points; a linear
model from the other half.
"""

import warnings
from typing import Any

import numpy as np
from scipy import stats

from csgmcmc.checks.evaluation import Array, Evaluation
from csgmcmc.checks.verdict import Numbers, Verdict, mean_interval, number

MIN_GAIN = 0.01  # over simple forecasts, in nats: per target, and relative to their NLL
MAX_LOSS = 10.0  # of one point, in nats, in the upper end of an interval
MIN_SHARE = 0.5  # of the gain of a linear model
LINEAR_WEIGHT = 0.99  # of the linear model in a mixture with the simple forecast
MIN_ROWS = 20  # of a linear model
NEAR = 0.1  # relative difference between a loss and that of guessing
MAX_SCALE = 30.0  # of inputs: a root mean square beyond it is named as a cause


def check_learned(evaluation: Evaluation, numbers: Numbers) -> Verdict:
    """Whether the average beats forecasts that ignore the inputs, and what a line can do."""
    per_target = 1 / evaluation.targets_per_point
    ours, simple = (
        scores * per_target for scores in (evaluation.average_scores(), simple_scores(evaluation))
    )
    gains, numbers["nll_simple"] = ours - simple, float(-simple.mean())
    what = "class frequencies" if evaluation.probs is not None else "mean and sd of the targets"
    least = MIN_GAIN * max(evaluation.probs is None, numbers["nll_simple"])
    found = mean_interval(gains)
    # A few impossible targets make the interval wide; without them the gain can only be larger.
    found = found._replace(high=min(found.high, mean_interval(np.maximum(gains, -MAX_LOSS)).high))
    words = f"NLL {number(-ours.mean())}, of {what} {number(numbers['nll_simple'])}: lower by "
    words += f"{found} (at least {number(least)})"
    verdict = found.judge(words, "", len(gains), least)
    linear = None if verdict.holds is False else _linear_scores(evaluation, simple)
    if linear is None:
        return verdict
    rows, gain = len(linear), float((linear - simple[: len(linear)]).mean())
    numbers["nll_linear"] = float(-linear.mean())
    words += f"; of a linear model of half of these points {number(numbers['nll_linear'])}"
    excess = mean_interval(gains[:rows] - MIN_SHARE * (linear - simple[:rows]))
    if excess.high < 0 < gain:
        share = gains[:rows].mean() / gain
        return Verdict(False, f"{words}, so that only {share:.0%} of its gain is reached")
    return found.judge(words, "", len(gains), least)


def simple_scores(evaluation: Evaluation) -> Array:
    """Log-score of each data point by frequencies, or a Gaussian, of all the other targets."""
    targets, points = evaluation.targets, evaluation.log_scores.shape[1]
    if evaluation.probs is not None:
        classes = evaluation.probs.shape[1]
        counts = np.bincount(targets, minlength=classes)[targets]
        scores = np.log(counts / (len(targets) - 1 + classes))  # and one more of each class
        return np.bincount(evaluation.point_of_target, scores, points).astype(float)
    centred = targets.reshape(points, -1) - targets.reshape(points, -1).mean(0)
    means = -centred / max(points - 1, 1)  # of all others
    squares = (np.square(centred).sum(0) - np.square(centred)) / max(points - 1, 1)
    spread = np.sqrt(np.maximum(squares - np.square(means), 1e-12))
    return stats.norm.logpdf(centred, means, spread).sum(1)


def _linear_scores(evaluation: Evaluation, simple: Array) -> Array | None:
    """Log-score per target of the first rows, each by a linear model of half of them.

    None where inputs are no table, or points of a classifier have several targets.
    """
    from sklearn import linear_model, model_selection  # noqa: PLC0415  (slow to import)

    x, points, probs = evaluation.inputs, evaluation.log_scores.shape[1], evaluation.probs
    if x is None or len(x) < MIN_ROWS or not np.isfinite(x).all():
        return None
    if probs is not None and len(evaluation.targets) != points:
        return None
    x = (x - x.mean(0)) / (x.std(0) + 1e-12)
    y = evaluation.targets.reshape(points, -1)[: len(x)]
    options: Any = {"cv": model_selection.KFold(2, shuffle=True, random_state=0)}
    if probs is None:
        residuals = y - model_selection.cross_val_predict(linear_model.Ridge(), x, y, **options)
        scores = stats.norm.logpdf(residuals, 0, residuals.std(0) + 1e-9).sum(1)
    else:
        model = linear_model.LogisticRegression(max_iter=100)
        options["method"] = "predict_log_proba"
        with warnings.catch_warnings(action="ignore"):  # a fit that has not converged will do
            found: Any = model_selection.cross_val_predict(model, x, y[:, 0], **options)
        scores = found[np.arange(len(x)), np.unique(y[:, 0], return_inverse=True)[1]]
    scores = np.log(LINEAR_WEIGHT) + scores / evaluation.targets_per_point
    return np.logaddexp(scores, np.log1p(-LINEAR_WEIGHT) + simple[: len(x)])


def causes(evaluation: Evaluation, problems: list[str], loss: float | None) -> tuple[str, ...]:
    """Likely causes of a network that has not learned, those with evidence first.

    `problems` are what the run was warned of, `loss` the NLL per target of training data under the
    last draw, if it is known.
    """
    found: list[str] = []
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
    found.append(
        "check the loop: zero_grad() before each backward(), batches in random order, an lr that "
        "csgmcmc.suggest_lr finds"
    )
    return tuple(found)
