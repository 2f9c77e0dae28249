"""Claims that one method has a lower score than another, from scores by method and seed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from paper.report.gaps import Gap, by_seed, tally
from paper.report.page import Claim, mean_and_error

Scores = Mapping[str, Mapping[int, Mapping[str, Any]]]
"""Scores by method and seed."""
DIGITS = {"error": 2, "single_error": 2, "nll": 4, "ece": 4, "top1_error": 2, "top5_error": 2}


def gap(scores: Scores, score: str, low: str, high: str) -> Gap:
    """How much lower `score` is for `low` than for `high`."""
    sides = (
        {seed: found[score] for seed, found in scores.get(method, {}).items()}
        for method in (low, high)
    )
    return by_seed(*sides)


def all_lower(
    text: str, paper: str, scores: Scores, score: str, pairs: Sequence[tuple[str, str]]
) -> Claim:
    """The claim that `score` is lower for the first of each pair than for the second."""
    gaps = {pair: gap(scores, score, *pair) for pair in pairs}
    if not all(one.seeds for one in gaps.values()):
        return Claim(text, paper, "some of the runs are missing or diverged")
    methods = dict.fromkeys(method for pair in pairs for method in pair)
    numbers = ", ".join(f"{method} {shown(scores, method, score)}" for method in methods)
    factor, digits = _units(score)
    others = []
    for (low, high), one in gaps.items():
        if one.side is not True:
            error = f" ± {factor * one.error:.{digits}f}" if math.isfinite(one.error) else ""
            size = f"{factor * abs(one.mean):.{digits}f}{error}"
            others.append(f"{low} is {size} {'below' if one.mean > 0 else 'above'} {high}")
    found = [*gaps.values()]
    return Claim(text, paper, "; ".join([f"{tally(found)} ({numbers})", *others]), gaps=found)


def shown(scores: Scores, method: str, score: str) -> str:
    """The mean of a score with its standard error over seeds; errors in percent."""
    factor, digits = _units(score)
    values = [factor * found[score] for found in scores.get(method, {}).values()]
    return mean_and_error(values, digits) if values else "-"


def _units(score: str) -> tuple[float, int]:
    return (100.0 if score.endswith("error") else 1.0), DIGITS.get(score, 4)
