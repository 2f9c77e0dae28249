"""The table of the digits experiment."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from rich.table import Table


class ScoreRow(Protocol):
    """What the table shows of one method and seed."""

    @property
    def method(self) -> str: ...
    @property
    def networks(self) -> int: ...
    @property
    def error(self) -> float: ...
    @property
    def nll(self) -> float: ...
    @property
    def calibration_error(self) -> float: ...
    @property
    def auroc(self) -> float: ...


def table(scores: Iterable[ScoreRow], steps: int) -> Table:
    """One row a method: its mean over the seeds, and the standard error where there are several."""
    shown = Table(
        title=f"digits, {steps} steps each",
        caption="ECE: expected calibration error. AUROC: letters told from digits by entropy",
    )
    shown.add_column("method")
    for heading in ("draws", "error %", "NLL", "ECE", "AUROC"):
        shown.add_column(heading, justify="right")
    by_method: dict[str, list[ScoreRow]] = {}
    for score in scores:
        by_method.setdefault(score.method, []).append(score)
    for method, rows in by_method.items():
        shown.add_row(
            method,
            str(rows[0].networks),
            _mean([100 * row.error for row in rows], digits=2),
            _mean([row.nll for row in rows], digits=3),
            _mean([row.calibration_error for row in rows], digits=3),
            _mean([row.auroc for row in rows], digits=3),
        )
    return shown


def _mean(values: Sequence[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ±{np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}"
