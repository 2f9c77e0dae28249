"""What a page shows: the logs of a run, and scores of the draws on held-out data."""

import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from csgmcmc import diagnostics
from csgmcmc.checks import Check
from csgmcmc.checks.evaluation import Array, Evaluation
from csgmcmc.diagnostics.calibration import ReliabilityCurve
from csgmcmc.loop.log import read_scalars
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.predictive import ClassPredictive

COLUMNS = ("step", "cycle", "lr", "temperature", "loss")  # of a log
LEVELS = np.linspace(0.05, 0.95, 19)  # of predictive intervals

Traces = dict[int, dict[str, Array]]  # the columns of the log of each chain


class Findings(NamedTuple):
    """What a page shows of held-out data."""

    evaluation: Evaluation
    check: Check
    entropies: dict[str, Array]  # of "right" and "wrong" predictions, and "other" data, in nats


class CycleScores(NamedTuple):
    """Scores of the average of a cycle's draws, and the weight of the cycle."""

    nll: float
    error: float
    weight: float


def logged_traces(folder: Path) -> Traces:
    """The logs in the folder of a store; damaged logs are left out."""
    found: Traces = {}
    for path in sorted((folder / "logs").glob("[0-9]*.jsonl")):
        with suppress(OSError, KeyError, ValueError):
            log = read_scalars(path)
            found[int(path.stem)] = {name: np.asarray(log[name], dtype=float) for name in COLUMNS}
    return found


def error_by_draws(evaluation: Evaluation) -> Array:
    """Error of the average of the first 1, 2, ... draws; nan while their weights are 0."""
    members, weights = evaluation.members, evaluation.weights
    total, found = np.zeros(members.shape[1:]), []
    for prediction, weight, so_far in zip(members, weights, weights.cumsum(), strict=True):
        total += weight * prediction
        found.append(evaluation.error(total / so_far) if so_far > 0 else math.nan)
    return np.array(found)


def scores_of_cycles(evaluation: Evaluation) -> list[CycleScores]:
    """Scores of each cycle; its draws count equally if their weights are 0."""
    found = []
    for number in dict.fromkeys(evaluation.cycles.tolist()):
        here = evaluation.cycles == number
        weights = np.where(here, evaluation.weights, 0.0)
        counted = weights if weights.any() else here.astype(float)
        average = np.average(evaluation.members[here], axis=0, weights=counted[here])
        scores = evaluation.nll(counted), evaluation.error(average)
        found.append(CycleScores(*scores, float(weights.sum())))
    return found


def calibration_curve(evaluation: Evaluation) -> ReliabilityCurve:
    """Accuracy by confidence; for numbers, coverage by level of the intervals."""
    if evaluation.probs is not None:
        return diagnostics.reliability_curve(evaluation.probs, evaluation.targets)
    assert evaluation.ranks is not None  # noqa: S101  (classes or numbers)
    off = np.abs(evaluation.ranks - 0.5)
    inside = np.array([(off <= level / 2).mean() for level in LEVELS])
    return ReliabilityCurve(LEVELS, inside, np.full(len(LEVELS), len(off)))


def entropies(
    posterior: Posterior, evaluation: Evaluation, other: Iterable[Any] | None
) -> dict[str, Array]:
    """Entropy of predictions of classes, in nats: "right", "wrong", and of "other" data."""
    if evaluation.probs is None:
        return {}
    entropy = np.asarray(stats.entropy(evaluation.probs, axis=1))
    is_right = evaluation.probs.argmax(axis=1) == evaluation.targets
    found: dict[str, Any] = {"right": entropy[is_right], "wrong": entropy[~is_right]}
    predicted = None if other is None else posterior.predict_loader(other)
    if isinstance(predicted, ClassPredictive):
        found["other"] = stats.entropy(predicted.probs_numpy(), axis=1)
    return {name: values for name, values in found.items() if len(values)}


def auroc(entropies: dict[str, Array]) -> dict[str, float]:
    """AUROC of entropy, by what it separates."""
    held_out = [entropies[name] for name in ("right", "wrong") if name in entropies]
    found = {}
    if len(held_out) == 2:
        found["wrong predictions from right ones"] = diagnostics.auroc(*held_out)
    if "other" in entropies:
        both = np.concatenate(held_out), entropies["other"]
        found["other data from these"] = diagnostics.auroc(*both)
    return found
