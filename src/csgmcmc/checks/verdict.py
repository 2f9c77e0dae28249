"""An answer in words, and how numbers and names are written in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from csgmcmc.checks.run import StepperLike
from csgmcmc.stepper import LoopWords

Numbers = dict[str, float]
Advice = list[str]

ROUNDING = 1e-6  # differences that are none
MOST_DIGITS = 6  # after the decimal point: enough to tell apart what differs by more
MOST_NAMES = 4


@dataclass(frozen=True)
class Verdict:
    """One answer: yes, no, or None if it is unknown; and why."""

    holds: bool | None
    words: str

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "unknown"}[self.holds]
        return f"{answer}: {self.words}"


def words_of(stepper: StepperLike | None) -> LoopWords:
    """What the loop of a run calls its settings."""
    found = getattr(stepper, "words", None)
    return found if isinstance(found, LoopWords) else LoopWords()


def told_apart(*values: float, digits: int = 3) -> list[str]:
    """Numbers as text, with as many digits as it takes to tell apart those that differ."""
    different = len({round(value, MOST_DIGITS) for value in values})
    while True:
        texts = [f"{value:z.{digits}f}" for value in values]  # z: no minus before a zero
        if len(set(texts)) >= different or digits >= MOST_DIGITS:
            return texts
        digits += 1


def percents(*shares: float, digits: int = 1) -> list[str]:
    """Shares as percentages that can be told apart, where they differ."""
    return [f"{text}%" for text in told_apart(*(100 * share for share in shares), digits=digits)]


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
