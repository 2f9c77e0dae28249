"""Differences between two methods, and whether they are more than chance allows.

Methods of one seed share their start and data, so that they are compared seed by seed, by a t test.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.05
"""Probability at which a difference, or a claim, counts as clear."""


@dataclass(frozen=True)
class Gap:
    """The mean over seeds of a difference, its standard error, and the number of seeds."""

    mean: float
    error: float = math.inf
    seeds: int = 0

    @property
    def chance(self) -> float:
        """The probability of so large a difference, either way, where there is none."""
        if not math.isfinite(self.error) or self.mean == 0:
            return 1.0
        if self.error == 0:
            return 0.0
        return float(2 * stats.t.sf(abs(self.mean) / self.error, self.seeds - 1))

    @property
    def side(self) -> bool | None:
        """Whether the difference is clearly above 0 (True), clearly below (False), or neither."""
        return self.mean > 0 if self.chance < LEVEL else None


def by_seed(low: Mapping[int, float], high: Mapping[int, float]) -> Gap:
    """How far `high` is above `low`, over the seeds that both have."""
    return lead([high[seed] - low[seed] for seed in sorted(low.keys() & high.keys())])


def paired(low: Sequence[float], high: Sequence[float]) -> Gap:
    """How far `high` is above `low`, which are lists of the same seeds."""
    return lead([one - other for one, other in zip(high, low, strict=True)])


def lead(values: Sequence[float]) -> Gap:
    """How far values, one for each seed, are above 0."""
    return above(values, 0.0)


def above(values: Sequence[float], number: float, error: float = 0.0) -> Gap:
    """How far the mean of `values` is above a number that has a standard error itself."""
    count = len(values)
    if not count:
        return Gap(0.0)
    own = float(np.std(values, ddof=1)) / count**0.5 if count > 1 else math.inf
    return Gap(float(np.mean(values)) - number, math.hypot(own, error), count)


def within(gap: Gap, near: float) -> tuple[Gap, Gap]:
    """How far a difference is inside of both limits, -near and near: two one-sided tests."""
    return (
        Gap(near + gap.mean, gap.error, gap.seeds),
        Gap(near - gap.mean, gap.error, gap.seeds),
    )


def evidence(gaps: Sequence[Gap]) -> tuple[bool, float]:
    """What the gaps of a claim say together, all of which should be above 0, and how surely.

    That they all are is as sure as the least clear of them. That one of them is not is as sure as
    the clearest, times the number of gaps (Bonferroni).
    """
    if all(gap.mean > 0 for gap in gaps):
        return True, max(gap.chance for gap in gaps)
    against = min(gap.chance for gap in gaps if gap.mean <= 0)
    return False, min(1.0, len(gaps) * against)


def tally(gaps: Sequence[Gap]) -> str:
    """How many comparisons there are of each kind."""
    sides = [gap.side for gap in gaps]
    held = f"{sides.count(True)} of {len(sides)} comparisons hold"
    others = {"contradicted": sides.count(False), "undecided": sides.count(None)}
    return ", ".join([held, *(f"{count} {name}" for name, count in others.items() if count)])
