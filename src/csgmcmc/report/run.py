"""The record that `csgmcmc run` keeps in the folder of a run, as a table."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from csgmcmc.arguments import check_count, check_kind, check_number
from csgmcmc.report import as_text

NAME = "run.json"
PAGE_NUMBERS = "report.json"  # see `csgmcmc.report.findings`
SCORES = ("error", "RMSE", "NLL", "ECE")

Record = Mapping[str, Any]
"""run, chains, cycles, draws, seconds; then average, draw and check, or why there are none."""


def _check_text(name: str, value: Any) -> None:
    check_kind(name, value, str, "text")


def _check_text_or_null(name: str, value: Any) -> None:
    if value is not None:
        _check_text(name, value)


def _check_scores(name: str, value: Any) -> None:
    if value is None:
        return
    for score, number in check_kind(name, value, dict, "scores by name").items():
        check_kind(f"{name}.{score}", number, (int, float), "a number")
        if isinstance(number, int):  # a float may be infinite, and has a size
            check_number(f"{name}.{score}", number)


FIELDS: Mapping[str, Callable[[str, Any], object]] = {
    "run": _check_text,
    **dict.fromkeys(("chains", "cycles", "draws"), partial(check_count, at_least=0, below=2**63)),
    "seconds": partial(check_number, at_least=0),
    "average": _check_scores,
    "draw": _check_scores,
    "check": _check_text_or_null,
    "why": _check_text_or_null,
}
"""Checks of the fields of a record."""


def read_record(folder: Path) -> Record:
    """The record in the folder of a run; empty if there is none yet."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or "run" not in found:
        raise ValueError(f"{path} is not a record of csgmcmc run")
    for name, check in FIELDS.items():
        if name in found:
            check(f"{path} is damaged: {name}", found[name])
    return found


def check_complete(record: Record, folder: Path) -> None:
    """Raise a `ValueError` if the record of a finished run lacks what `overview` shows."""
    missing = [name for name in FIELDS if name not in record]
    if missing:
        raise ValueError(
            f"{folder / NAME} is damaged: it has no {', '.join(missing)}; the command of the run "
            "with --report writes it again"
        )


def overview(record: Record, folder: Path) -> RenderableType:
    """Counts and time; scores of the posterior predictive beside its draws; the check."""
    chains = f"{record['chains']} chain{'s' if record['chains'] > 1 else ''}"
    counts = f"{record['draws']} draws, {record['cycles']} cycles, {chains}"
    title = as_text(f"{folder}: {counts}, {record['seconds']:.3g} s")
    if not record["average"]:
        return Group(title, as_text(f"no scores: {record['why']}"))
    return Group(title, _table(record), as_text(record["check"]))


def _table(record: Record) -> Table:
    average, draw = record["average"], record["draw"] or {}
    names = [name for name in SCORES if name in average and name in draw]
    table = Table("validation data")
    for name in names:
        table.add_column("error %" if name == "error" else name, justify="right")
    rows = {f"average of {record['draws']} draws": average, "mean of single draws": draw}
    for title, row in rows.items():
        table.add_row(title, *(_as_text(name, row[name]) for name in names))
    return table


def _as_text(name: str, value: float) -> str:
    return f"{100 * value:.2f}" if name == "error" else f"{value:.4f}"
