"""The record that `csgmcmc run` keeps in the folder of a run, as a table."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

NAME = "run.json"
SCORES = ("error", "RMSE", "NLL", "ECE")

Record = Mapping[str, Any]
"""run, chains, cycles, draws, seconds; then average, draw and check, or why there are none."""


def read_record(folder: Path) -> Record:
    """The record in the folder of a run; empty if there is none yet."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict) or "run" not in found:
        raise ValueError(f"{path} is not a record of csgmcmc run")
    return found


def overview(record: Record, folder: Path) -> RenderableType:
    """Counts and time; scores of the posterior predictive beside its draws; the check."""
    chains = f"{record['chains']} chain{'s' if record['chains'] > 1 else ''}"
    counts = f"{record['draws']} draws, {record['cycles']} cycles, {chains}"
    title = Text(f"{folder}: {counts}, {record['seconds']:.3g} s")
    if not record["average"]:
        return Group(title, Text(f"no scores: {record['why']}"))
    return Group(title, _table(record), Text(record["check"]))


def _table(record: Record) -> Table:
    names = [name for name in SCORES if name in record["average"]]
    table = Table("validation data")
    for name in names:
        table.add_column("error %" if name == "error" else name, justify="right")
    for title, row in (
        (f"average of {record['draws']} draws", record["average"]),
        ("mean of single draws", record["draw"]),
    ):
        table.add_row(title, *(_as_text(name, row[name]) for name in names))
    return table


def _as_text(name: str, value: float) -> str:
    return f"{100 * value:.2f}" if name == "error" else f"{value:.4f}"
