"""Scalars of a run in a log file.

They are only for plots: if the file is damaged or cannot be written, the run warns and continues.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csgmcmc.errors import StoreWarning, warn
from csgmcmc.files import check_path, reason_of


def read_scalars(path: str | Path) -> dict[str, NDArray]:
    """The columns of a log by name, ordered by step, without lines that are damaged."""
    path, rows = check_path("path", path), {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows[row["step"]] = row  # a resumed run writes some steps again
    ordered = [rows[step] for step in sorted(rows)]
    names = list(ordered[0]) if ordered else []
    return {
        name: np.array([row[name] for row in ordered if row.keys() >= set(names)]) for name in names
    }


class ScalarLog:
    """One JSON object per line: step, loss, lr, temperature, cycle, stage, draws.

    Args:
        path: the file; None logs nothing.
        first_step: first step of this run; that of a resumed run adds to the file.
    """

    def __init__(self, path: Path | None, first_step: int) -> None:
        self._path, self._file = path, None
        if path is not None:
            self._attempt(self._open, path, first_step)

    def _open(self, path: Path, first_step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a" if first_step else "w")
        self._file.write("\n" if first_step else "")  # a killed run may leave half a line

    def write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            self._attempt(self._file.write, json.dumps(row) + "\n")

    def flush(self) -> None:
        if self._file is not None:
            self._attempt(self._file.flush)

    def close(self) -> None:
        """Close the log; lines that cannot be written any more are dropped."""
        if self._file is not None:
            with suppress(OSError):  # a full disk, which was reported already
                self._file.close()
        self._file = None

    def _attempt(self, action: Callable[..., object], *args: Any) -> None:
        """Run `action`; if it fails, warn, and log nothing from then on."""
        try:
            action(*args)
        except OSError as error:
            words = f"{self._path}: the run continues without its log: {reason_of(error)}"
            warn(words, StoreWarning)
            self.close()
