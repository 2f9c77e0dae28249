"""The verdicts on the claims of a report, corrected for their number."""

from collections.abc import Sequence
from dataclasses import dataclass

from paper.report.gaps import LEVEL, evidence
from paper.report.page import Claim

HELD, CONTRADICTED, OPEN, ELSEWHERE = "held", "contradicted", "undecided", "not reproduced"
KINDS = (HELD, CONTRADICTED, ELSEWHERE, OPEN)
SEEDS = 5
"""Fewer seeds decide nothing."""
RULE = (
    "A claim says that each of its comparisons holds. Methods are compared seed by seed by a "
    "two-sided t test (three seeds need a difference of 4.30 standard errors, ten 2.26), and the "
    "comparisons that a cell counts are clear at 5 %. A claim is held if all its comparisons are "
    "clear, and contradicted if one is clear the other way, corrected for the number of "
    "comparisons; both at 5 % after Holm's correction for the number of claims of the report that "
    f"can be decided. Fewer than {SEEDS} seeds decide nothing. Where the paper leaves settings "
    "open that the number depends on, what is not held is “not reproduced”."
)


@dataclass(frozen=True)
class Verdict:
    """A verdict in words, and how sure it is."""

    kind: str
    text: str
    sure: str


def judge(claims: Sequence[Claim]) -> list[Verdict]:
    """The verdicts on all claims of a report.

    Claims without chance, which are exact, are not counted in the correction, and neither are
    those of too few seeds.
    """
    chances = {
        place: evidence(claim.gaps)[1] for place, claim in enumerate(claims) if _decidable(claim)
    }
    corrected = _holm(chances)
    return [_verdict(claim, corrected.get(place)) for place, claim in enumerate(claims)]


def seeds_of(claim: Claim) -> int:
    """Those of the comparison that has the fewest."""
    return min((gap.seeds for gap in claim.gaps), default=0)


def _decidable(claim: Claim) -> bool:
    return seeds_of(claim) >= SEEDS and not claim.doubt


def _verdict(claim: Claim, corrected: float | None) -> Verdict:
    if not claim.gaps:
        if claim.holds is None:
            return Verdict(OPEN, OPEN, "missing runs")
        return _word(claim, claim.holds, "exact")
    holds, chance = evidence(claim.gaps)
    seeds = seeds_of(claim)
    number = f"{seeds} seed{'s' if seeds > 1 else ''}"
    if claim.doubt:
        return Verdict(OPEN, f"{OPEN} ({claim.doubt})", number)
    if corrected is None:
        leaning = f"leans {'for' if holds else 'against'}, p {_shown(chance)}"
        return Verdict(OPEN, f"{OPEN} ({number})", "-" if seeds < 2 else leaning)
    sure = f"p {_shown(corrected)} corrected, {number}"
    if corrected >= LEVEL:
        return Verdict(OPEN, OPEN, f"p {_shown(chance)}; {sure}")
    return _word(claim, holds, sure)


def _word(claim: Claim, holds: bool, sure: str) -> Verdict:
    kind = HELD if holds else ELSEWHERE if claim.unstated else CONTRADICTED
    return Verdict(kind, kind, sure)


def _holm(chances: dict[int, float]) -> dict[int, float]:
    corrected, largest = {}, 0.0
    for rank, place in enumerate(sorted(chances, key=lambda place: chances[place])):
        largest = max(largest, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = largest
    return corrected


def _shown(chance: float) -> str:
    return f"= {chance:.2g}" if chance >= 0.001 else "< 0.001"
