"""Reads the log of a run: one JSON object per line, see `csgmcmc.chain`."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def read_scalars(path: str | Path) -> dict[str, NDArray]:
    """The columns of a log, by name. Lines that are torn or damaged are left out."""
    rows = read_rows(Path(path))
    names = list(rows[0]) if rows else []
    rows = [row for row in rows if row.keys() >= set(names)]
    return {name: np.array([row[name] for row in rows]) for name in names}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines that are rows of a log; one of a killed run may be torn."""
    rows = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and type(row.get("step")) is int:
                rows.append(row)
    return rows
