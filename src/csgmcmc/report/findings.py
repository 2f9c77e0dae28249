"""What a page shows of held-out data: plain numbers, which a file beside the draws can hold."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csgmcmc import diagnostics
from csgmcmc.arguments import check_choice, check_count, check_kind
from csgmcmc.checks import Check, Evaluation, ParameterReport
from csgmcmc.draws import Draw

VERDICTS = ("sampling", "mixing", "calibrated", "better")
ENTROPIES = 101  # at which the distributions are evaluated
LEVELS = np.linspace(0.05, 0.95, 19)  # of predictive intervals

Array = NDArray[np.float64]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Findings:
    """What every draw, and their average, is worth on held-out data.

    Attributes:
        points: number of data points.
        error_name: "error" of classes, or "RMSE" of numbers.
        nll_by_draws: NLL of the average of the first 1, 2, ... draws, by chain and step.
        error_by_draws: its error.
        nll_of_draws: NLL of each draw alone.
        error_of_draws: its error.
        cycles: of each cycle its chain_id, cycle, number of draws, weight, the weight that stacking
            would give it (None if unknown), and NLL and error of the average of its draws.
        confidence: of the top class, in bins; for numbers, levels of predictive intervals.
        accuracy: of the top class in each bin; for numbers, the share of targets inside.
        count: points in each bin.
        entropies: at which the next are given, in nats; empty for numbers.
        share_up_to: share of points with at most that entropy: of those predicted "right", of
            those "wrong", and of "other" data.
        auroc: how well entropy tells "wrong" from right, and "other" from held-out data.
        verdicts: of the check: "holds" and "words" of each.
        advice: what to change.
        numbers: all that the check measured.
        parameters: of each parameter tensor its size, variance of injected and of minibatch noise,
            and temperature: value, low, high and target, None with fewer than two draws.
    """

    points: int
    error_name: str
    nll_by_draws: list[float]
    error_by_draws: list[float]
    nll_of_draws: list[float]
    error_of_draws: list[float]
    cycles: list[Row]
    confidence: list[float]
    accuracy: list[float]
    count: list[int]
    entropies: list[float]
    share_up_to: dict[str, list[float]]
    auroc: dict[str, float]
    verdicts: dict[str, Row]
    advice: list[str]
    numbers: dict[str, float]
    parameters: dict[str, Row]

    def save(self, path: Path) -> None:
        """Write all of it as JSON, in which numbers that are not finite are NaN and Infinity."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Findings":
        """Read a file of `save`, or raise a `ValueError`."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        found = _checked(f"{path} is damaged: it", found, SHAPE)
        check_choice(f"{path} is damaged: error_name", found["error_name"], ("error", "RMSE"))
        same_length = [
            ("nll_by_draws", "error_by_draws", "nll_of_draws", "error_of_draws"),
            ("confidence", "accuracy", "count"),
        ]
        for name in ("nll_by_draws", "cycles", "confidence"):
            if not found[name]:
                raise ValueError(f"{path} is damaged: {name} is empty")
        for names in same_length:
            if len({len(found[name]) for name in names}) > 1:
                raise ValueError(f"{path} is damaged: {', '.join(names)} have different lengths")
        if any(len(share) != len(found["entropies"]) for share in found["share_up_to"].values()):
            raise ValueError(f"{path} is damaged: share_up_to and entropies have different lengths")
        return cls(**{each.name: found[each.name] for each in fields(cls)})


WORDS = {str: "text", bool: "true or false"}
LARGEST = 1e300  # no plot has numbers beyond it
TEMPERATURE = ("value", "low", "high", "target")
OPTIONAL, NUMBERS, ANY_NAME = (float, None), [float], "*"
SHAPE = {
    "points": int,
    "error_name": str,
    "nll_by_draws": NUMBERS,
    "error_by_draws": NUMBERS,
    "nll_of_draws": NUMBERS,
    "error_of_draws": NUMBERS,
    "cycles": [
        {
            **dict.fromkeys(("chain_id", "cycle", "draws"), int),
            **dict.fromkeys(("weight", "nll", "error"), float),
            "stacking": OPTIONAL,
        }
    ],
    "confidence": NUMBERS,
    "accuracy": NUMBERS,
    "count": [int],
    "entropies": NUMBERS,
    "share_up_to": {ANY_NAME: NUMBERS},
    "auroc": {ANY_NAME: float},
    "verdicts": {name: {"holds": (bool, None), "words": str} for name in VERDICTS},
    "advice": [str],
    "numbers": {ANY_NAME: float},
    "parameters": {
        ANY_NAME: {
            "size": int,
            **dict.fromkeys(("injected", "minibatch"), float),
            **dict.fromkeys(TEMPERATURE, OPTIONAL),
        }
    },
}
"""What a file holds, by name: kinds, lists of one kind, and None where that is possible."""


def find(
    evaluation: Evaluation,
    check: Check,
    draws: Sequence[Draw],
    *,
    stacking: Array | None = None,
    other: Array | None = None,
) -> Findings:
    """All findings, from plain arrays.

    Args:
        evaluation: of the draws on held-out data.
        check: of the same.
        draws: in the order of the evaluation.
        stacking: weight of each draw if cycles were stacked on these data.
        other: predictive probabilities of other data, of shape (points, classes).
    """
    weights, cycles = evaluation.weights, []
    for number in dict.fromkeys(evaluation.cycles.tolist()):
        here = evaluation.cycles == number
        first = draws[int(np.flatnonzero(here)[0])]
        cycles.append(
            {
                "chain_id": first.chain_id,
                "cycle": first.cycle,
                "draws": int(here.sum()),
                "weight": float(weights[here].sum()),
                "stacking": None if stacking is None else float(stacking[here].sum()),
                "nll": _nlls(evaluation, here)[-1],
                "error": _errors(evaluation, here)[-1],
            }
        )
    alone = [np.arange(len(draws)) == number for number in range(len(draws))]
    confidence, accuracy, count = _calibration(evaluation)
    entropies, shares, auroc = _uncertainty(evaluation, other)
    return Findings(
        points=evaluation.log_scores.shape[1],
        error_name="error" if evaluation.labels is not None else "RMSE",
        nll_by_draws=_nlls(evaluation),
        error_by_draws=_errors(evaluation),
        nll_of_draws=[_nlls(evaluation, one)[0] for one in alone],
        error_of_draws=[_errors(evaluation, one)[0] for one in alone],
        cycles=cycles,
        confidence=confidence.tolist(),
        accuracy=accuracy.tolist(),
        count=count.tolist(),
        entropies=entropies,
        share_up_to=shares,
        auroc=auroc,
        verdicts={
            name: {"holds": getattr(check, name).holds, "words": getattr(check, name).words}
            for name in VERDICTS
        },
        advice=list(check.advice),
        numbers=dict(check.numbers),
        parameters={name: _parameter(report) for name, report in check.parameters.items()},
    )


def _chosen(evaluation: Evaluation, chosen: NDArray[np.bool_] | None) -> tuple[Any, Array]:
    """Numbers of the chosen draws, and their weights; equal ones if all weights are 0."""
    numbers = np.arange(len(evaluation.weights)) if chosen is None else np.flatnonzero(chosen)
    weights = evaluation.weights[numbers]
    return numbers, weights if weights.any() else np.ones(len(numbers))


def _nlls(evaluation: Evaluation, chosen: NDArray[np.bool_] | None = None) -> list[float]:
    """NLL per target of the average of the first 1, 2, ... of the chosen draws."""
    numbers, weights = _chosen(evaluation, chosen)
    with np.errstate(divide="ignore", invalid="ignore"):  # nan before the first draw that counts
        weighted = evaluation.log_scores[numbers] + np.log(weights)[:, None]
        means = np.logaddexp.accumulate(weighted) - np.log(weights.cumsum())[:, None]
    return (-means.mean(axis=1) / evaluation.targets_per_point).tolist()


def _errors(evaluation: Evaluation, chosen: NDArray[np.bool_] | None = None) -> list[float]:
    """Error or RMSE of the average of the first 1, 2, ... of the chosen draws."""
    numbers, weights = _chosen(evaluation, chosen)
    labels, targets = evaluation.labels, evaluation.targets
    predictions = evaluation.means if labels is None else evaluation.member_probs
    assert predictions is not None  # noqa: S101  (classes or numbers)
    total, found = np.zeros(predictions.shape[1:]), []
    for number, sum_of_weights, weight in zip(numbers, weights.cumsum(), weights, strict=True):
        total += weight * predictions[number]
        if sum_of_weights == 0:
            found.append(math.nan)
        elif labels is not None:
            found.append(float((total.argmax(axis=1) != labels).mean()))
        else:
            assert targets is not None  # noqa: S101
            found.append(float(np.sqrt(np.square(total / sum_of_weights - targets).mean())))
    return found


def _calibration(evaluation: Evaluation) -> tuple[Array, Array, NDArray[np.int64]]:
    """Confidence and accuracy of classes, or levels of intervals and how many targets are inside.

    Then how many points each is of.
    """
    if evaluation.probs is not None and evaluation.labels is not None:
        curve = diagnostics.reliability_curve(evaluation.probs, evaluation.labels)
        return curve.confidence, curve.accuracy, curve.count
    ranks = evaluation.ranks
    assert ranks is not None  # noqa: S101  (classes or numbers)
    inside = [float((np.abs(ranks - 0.5) <= level / 2).mean()) for level in LEVELS]
    return LEVELS, np.array(inside), np.full(len(LEVELS), len(ranks))


def _uncertainty(
    evaluation: Evaluation, other: Array | None
) -> tuple[list[float], dict[str, list[float]], dict[str, float]]:
    """Entropies, the share of points up to each, and AUROC; empty for numbers."""
    probs, labels = evaluation.probs, evaluation.labels
    if probs is None or labels is None:
        return [], {}, {}
    found, is_right = _entropy(probs), probs.argmax(axis=1) == labels
    groups = {"right": found[is_right], "wrong": found[~is_right]}
    if other is not None:
        groups["other"] = _entropy(other)
    grid = np.linspace(0, math.log(probs.shape[1]), ENTROPIES)
    grid[-1] *= 1 + 1e-6  # rounding may put an entropy above the largest
    shares = {
        name: diagnostics.cumulative_distribution(values, grid).tolist()
        for name, values in groups.items()
        if len(values)
    }
    auroc = {}
    if len(groups["right"]) and len(groups["wrong"]):
        auroc["wrong"] = diagnostics.auroc(groups["right"], groups["wrong"])
    if "other" in groups:
        auroc["other"] = diagnostics.auroc(found, groups["other"])
    return grid.tolist(), shares, auroc


def _entropy(probs: Array) -> Array:
    """In nats, of probabilities of shape (points, classes)."""
    return -(probs * np.log(np.where(probs > 0, probs, 1.0))).sum(axis=1)


def _parameter(report: ParameterReport) -> Row:
    temperature = report.temperature
    return {
        "size": report.size,
        "injected": float(report.noise.injected),
        "minibatch": float(report.noise.minibatch),
        **{name: temperature and float(getattr(temperature, name)) for name in TEMPERATURE},
    }


def _checked(name: str, value: Any, shape: Any) -> Any:
    """A value from a file, if it has the shape, or a `ValueError`; fields of no shape are left."""
    if isinstance(shape, tuple):
        return None if value is None else _checked(name, value, shape[0])
    if isinstance(shape, list):
        items = check_kind(name, value, list, "a list")
        return [_checked(f"{name}[{index}]", each, shape[0]) for index, each in enumerate(items)]
    if isinstance(shape, dict):
        found = check_kind(name, value, dict, "an object")
        if ANY_NAME in shape:
            return {key: _checked(f"{name}.{key}", found[key], shape[ANY_NAME]) for key in found}
        missing = [key for key in shape if key not in found]
        if missing:
            raise ValueError(f"{name} has no {', '.join(missing)}")
        return {key: _checked(f"{name}.{key}", found[key], shape[key]) for key in shape}
    if shape is float:
        number = check_kind(name, value, (int, float), "a number")
        # Whole numbers in a file may be too large for a float.
        return float(min(max(number, -LARGEST), LARGEST)) if isinstance(number, int) else number
    if shape is int:
        return check_count(name, value, at_least=0, below=2**63)
    return check_kind(name, value, shape, WORDS[shape])
