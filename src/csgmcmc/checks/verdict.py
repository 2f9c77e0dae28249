"""A verdict, and how numbers and names are written in it."""

from collections.abc import Sequence
from dataclasses import dataclass

Numbers = dict[str, float]
Advice = list[str]

ROUNDING = 1e-6  # smaller differences are ignored
MAX_DIGITS = 6  # after the decimal point
MAX_NAMES = 4


@dataclass(frozen=True)
class Verdict:
    """An answer, yes, no, or None if it is unknown, and the reason."""

    holds: bool | None
    words: str

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "unknown"}[self.holds]
        return f"{answer}: {self.words}"


def told_apart(*values: float, digits: int = 3) -> list[str]:
    """Format numbers with enough digits to tell apart those that differ."""
    different = len({round(value, MAX_DIGITS) for value in values})
    while True:
        texts = [f"{value:z.{digits}f}" for value in values]  # z: no minus before a zero
        if len(set(texts)) >= different or digits >= MAX_DIGITS:
            return texts
        digits += 1


def percents(*shares: float, digits: int = 1) -> list[str]:
    """Format fractions as percentages, with enough digits to tell apart those that differ."""
    return [f"{text}%" for text in told_apart(*(100 * share for share in shares), digits=digits)]


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
