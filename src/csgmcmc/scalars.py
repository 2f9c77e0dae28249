"""Reads the log of a run: one JSON object per line, see `csgmcmc.chain`."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csgmcmc.files import check_path


def read_scalars(path: str | Path) -> dict[str, NDArray]:
    """The columns of a log, by name. Lines that are torn or damaged are left out."""
    rows = read_rows(check_path("path", path))
    names = list(rows[0]) if rows else []
    rows = [row for row in rows if row.keys() >= set(names)]
    return {name: np.array([row[name] for row in rows]) for name in names}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines that are rows of a log; one of a killed run may be torn."""
    rows = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and type(row.get("step")) is int and _is_plain(row):
                rows.append(row)
    return rows


def _is_plain(row: dict[str, Any]) -> bool:
    """Whether all values are words and numbers, and whole numbers are not too large for a plot."""
    return all(
        isinstance(value, (str, float)) or (isinstance(value, int) and abs(value) < 2**63)
        for value in row.values()
    )
