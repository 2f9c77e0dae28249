"""What a page of the report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from csgmcmc.pages import COLOURS, INK, new_figure
from paper.report.gaps import LEVEL, Gap, evidence

__all__ = [
    "COLOURS",
    "INK",
    "Claim",
    "Grid",
    "Page",
    "Part",
    "Picture",
    "Results",
    "losses_by_lr",
    "mean_and_error",
    "new_figure",
    "standard_error",
]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the number that it gives, and ours; `verdicts.judge` judges it."""

    text: str
    paper: str
    ours: str
    exact: bool | None = None
    """Whether a claim holds that chance has no part in; None where there is nothing to judge."""
    gaps: Sequence[Gap] = ()
    """Comparisons that should all be above 0, if chance has a part in it."""
    unstated: bool = False
    """Whether it depends on settings that the paper leaves open."""
    doubt: str = ""
    """Why the comparisons cannot decide the claim, however clear they are."""

    @property
    def holds(self) -> bool | None:
        """What the claim's own comparisons say, without correction for the number of claims."""
        if not self.gaps:
            return self.exact
        holds, chance = evidence(self.gaps)
        return holds if chance < LEVEL else None


@dataclass(frozen=True)
class Grid:
    """A table."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure; `name` is the stem of its file, `caption` says what to see in it."""

    name: str
    figure: Figure
    caption: str


Part = Grid | Picture | str
"""A string is a paragraph of Markdown."""


@dataclass(frozen=True)
class Page:
    """One experiment in the report."""

    title: str
    summary: str
    claims: Sequence[Claim]
    parts: Sequence[Part] = field(default_factory=list)


Results = Mapping[str, Any]
"""The JSON of an experiment: experiment, preset, config, versions, machine, seconds, records."""


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; 0 for one value."""
    return float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0


def mean_and_error(values: Sequence[float], digits: int) -> str:
    """The mean, and its standard error where there are several values."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {standard_error(values):.{digits}f}"


def losses_by_lr(losses: Mapping[float, float | None]) -> str:
    """What a search for step sizes has found, as text."""
    return ", ".join(
        f"{lr:g}: " + ("diverged" if loss is None else f"{loss:.4f}")
        for lr, loss in sorted(losses.items())
    )
