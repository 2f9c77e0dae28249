"""Comparisons of lists of runs, one value for each seed, in the order of the seeds.

Methods of one seed share their start and noise, so that they are compared seed by seed.
"""

import math
from collections.abc import Sequence

import numpy as np

from paper.report.compare import ERRORS_APART, difference, outcome
from paper.report.page import standard_error

PAIRED_RULE = (
    f"A comparison holds, or is contradicted, where the difference is more than {ERRORS_APART:g} "
    "standard errors, compared seed by seed; one seed has no standard error and decides nothing. A "
    "claim is held where most of its comparisons hold and at most a sixth are contradicted, "
    "contradicted the other way round, and undecided otherwise."
)


def paired(low: Sequence[float], high: Sequence[float]) -> tuple[float, float]:
    """Mean of `high` - `low`, and its standard error; infinite for one seed."""
    return difference(dict(enumerate(low)), dict(enumerate(high)))


def above(values: Sequence[float], number: float, error: float = 0.0) -> tuple[float, float]:
    """How far the mean of `values` is above a number that has a standard error itself."""
    own = standard_error(values) if len(values) > 1 else math.inf
    return float(np.mean(values)) - number, math.hypot(own, error)


def agreement(gap: tuple[float, float], near: float) -> bool | None:
    """Whether two numbers that should be equal are: both near and not clearly different.

    They are not (False) where they differ clearly, and nothing is decided (None) between the two.
    """
    if outcome(gap) is not None:
        return False
    return True if abs(gap[0]) <= near and math.isfinite(gap[1]) else None
