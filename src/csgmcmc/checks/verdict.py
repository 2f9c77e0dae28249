"""Answers to questions about a posterior, by an interval against a tolerance."""

import math
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.99  # of all intervals
TOO_MANY = 1e6  # a need for more than this is not named

Numbers = dict[str, float]


@dataclass(frozen=True)
class Verdict:
    """An answer and its reason.

    Attributes:
        holds: True for yes, False for no, None if it is unknown or was not asked.
        words: the interval that was judged, and its tolerance.
        advice: what to change.
        asked: False if the run does not claim it, such as a sample at a temperature near 0.
    """

    holds: bool | None
    words: str
    advice: tuple[str, ...] = ()
    asked: bool = True

    @property
    def answer(self) -> str:
        """The answer in words: yes, no, unknown, or not asked for."""
        unknown = "unknown" if self.asked else "not asked for"
        return {True: "yes", False: "no", None: unknown}[self.holds]

    def __str__(self) -> str:
        return f"{self.answer}: {self.words}"


class Interval(NamedTuple):
    """A confidence interval around an estimate."""

    value: float
    low: float
    high: float

    def within(self, low: float, high: float = inf) -> bool | None:
        """True inside the tolerance, False outside, None if it is partly inside."""
        if low <= self.low and self.high <= high:
            return True
        return False if self.high < low or self.low > high else None

    def judge(
        self,
        words: str,
        advice: str,
        n: int,
        low: float,
        high: float = inf,
        of: str = "points",
    ) -> Verdict:
        """A verdict, which says how many instead of `n` would decide it if it is unknown."""
        holds = self.within(low, high)
        if holds is None:
            room = min(abs(self.value - low), abs(high - self.value))
            width = max(self.high - self.value, self.value - self.low)
            many = n * (width / room) ** 2 if room > 0 else inf
            if many < TOO_MANY:
                words += f": needs about {number(math.ceil(many))} {of}, has {n:,}"
            else:
                words += f": too close to the tolerance to decide by {of}"
        return Verdict(holds, words, (advice,) if advice and holds is False else ())

    def __str__(self) -> str:
        return f"{number(self.low)} to {number(self.high)}"


def mean_interval(values: NDArray[np.float64], least: float = 0.0) -> Interval:
    """Student's interval of a mean of independent values; `least` bounds its width from below."""
    mean = float(values.mean())
    if len(values) < 2 or not math.isfinite(mean):
        return Interval(mean, -inf, inf)
    error = float(stats.sem(values)) * float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1))
    return Interval(mean, mean - max(error, least), mean + max(error, least))


def number(value: float) -> str:
    """A number as a person writes it: three digits, and thousands with commas."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1000 <= abs(rounded) < TOO_MANY else f"{rounded:.3g}"
