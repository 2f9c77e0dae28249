"""Whether one method is better than another, by more than chance allows.

Scores are by method and seed. One seed gives all methods the same start and data, so that they are
compared seed by seed, and the standard error is that over seeds. Where there is one seed, it is
that of the number of test points, as if the methods' mistakes had nothing to do with each other:
larger than it is, since they err on the same points.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.report.page import Claim, mean_and_error, standard_error

ERRORS_APART = 2.0
FEW = 1 / 6
"""Share of the comparisons of a claim that may speak against its verdict."""
RULE = (
    f"A comparison holds, or is contradicted, where the difference is more than {ERRORS_APART:g} "
    "standard errors: over seeds, compared seed by seed, where there are several (two methods that "
    "are alike differ so much in 30 of 100 comparisons of two seeds, in 18 of three, in 8 of ten), "
    "else that of the number of test points. A claim is held where most of its comparisons hold "
    "and at most a sixth are contradicted, contradicted the other way round, and undecided "
    "otherwise."
)

Scores = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Scores by method and seed."""
DIGITS = {"error": 2, "single_error": 2, "nll": 4, "ece": 4, "top1_error": 2, "top5_error": 2}


def difference(low: Mapping[int, float], high: Mapping[int, float]) -> tuple[float, float]:
    """Mean over seeds of `high` - `low`, and its standard error; infinite for one seed."""
    gaps = [high[seed] - low[seed] for seed in sorted(low.keys() & high.keys())]
    if not gaps:
        return 0.0, math.inf
    return float(np.mean(gaps)), standard_error(gaps) if len(gaps) > 1 else math.inf


def is_clear(gap: tuple[float, float]) -> bool:
    """Whether a difference is above 0 by more than its error allows."""
    return gap[0] > ERRORS_APART * gap[1]


def outcome(gap: tuple[float, float]) -> bool | None:
    """Whether a comparison holds (True), is contradicted (False) or is undecided (None)."""
    if is_clear(gap):
        return True
    return False if is_clear((-gap[0], gap[1])) else None


def verdict(outcomes: Sequence[bool | None]) -> bool | None:
    """The verdict on a claim from those on its comparisons, by `RULE`."""
    for side in (True, False):
        most = outcomes.count(side) > len(outcomes) / 2
        if most and outcomes.count(not side) <= FEW * len(outcomes):
            return side
    return None


def tally(outcomes: Sequence[bool | None]) -> str:
    """How many comparisons there are of each kind."""
    held = f"{outcomes.count(True)} of {len(outcomes)} comparisons hold"
    others = {"contradicted": outcomes.count(False), "undecided": outcomes.count(None)}
    return ", ".join([held, *(f"{count} {name}" for name, count in others.items() if count)])


def gap(scores: Scores, score: str, low: str, high: str) -> tuple[float, float]:
    """How much lower `score` is for `low` than for `high`, and the standard error of that.

    With nothing to compare the error is infinite.
    """
    one, other = scores.get(low, {}), scores.get(high, {})
    low_values, high_values = (
        {seed: found[score] for seed, found in side.items()} for side in (one, other)
    )
    mean, error = difference(low_values, high_values)
    seeds = [*(one.keys() & other.keys())]
    if len(seeds) == 1:
        error = math.hypot(*(chance_error(side[seeds[0]], score) for side in (one, other)))
    return mean, error


def chance_error(found: Mapping[str, Any], score: str) -> float:
    """Standard error of one score that comes from the number of test points."""
    if score == "nll":
        return found["nll_error"]
    return float((found[score] * (1 - found[score]) / found["tested"]) ** 0.5)


def all_lower(
    text: str, paper: str, scores: Scores, score: str, pairs: Sequence[tuple[str, str]]
) -> Claim:
    """The claim that `score` is lower for the first of each pair than for the second."""
    gaps = {pair: gap(scores, score, *pair) for pair in pairs}
    if not all(np.isfinite(error) for _, error in gaps.values()):
        return Claim(text, paper, "some of the runs are missing or diverged", None)
    outcomes = [outcome(one) for one in gaps.values()]
    failed = {pair: one for pair, one in gaps.items() if not is_clear(one)}
    methods = dict.fromkeys(method for pair in pairs for method in pair)
    numbers = ", ".join(f"{method} {shown(scores, method, score)}" for method in methods)
    factor, digits = _units(score)
    but = "; ".join(
        f"{low} is {factor * abs(value):.{digits}f} ± {factor * error:.{digits}f} "
        f"{'below' if value > 0 else 'above'} {high}"
        for (low, high), (value, error) in failed.items()
    )
    ours = f"{tally(outcomes)} ({numbers}){'; ' if but else ''}{but}"
    return Claim(text, paper, ours, holds=verdict(outcomes))


def shown(scores: Scores, method: str, score: str) -> str:
    """The mean of a score with its standard error over seeds; errors in percent."""
    factor, digits = _units(score)
    values = [factor * found[score] for found in scores.get(method, {}).values()]
    return mean_and_error(values, digits) if values else "-"


def _units(score: str) -> tuple[float, int]:
    return (100.0 if score.endswith("error") else 1.0), DIGITS.get(score, 4)
