"""Scalars of a run: a log file, and TensorBoard events if it is installed.

They are only for plots. A log that is damaged or cannot be written is therefore a warning, and the
run continues.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csgmcmc.errors import StoreWarning, warn
from csgmcmc.files import atomic_write, check_path, parts_of, reason_of


def read_scalars(path: str | Path) -> dict[str, NDArray]:
    """The columns of a log by name, without lines that are truncated or damaged."""
    rows = read_rows(check_path("path", path))
    names = list(rows[0]) if rows else []
    rows = [row for row in rows if row.keys() >= set(names)]
    return {name: np.array([row[name] for row in rows]) for name in names}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a log that can be read: the last one of a killed run may be truncated."""
    rows = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows


class ScalarLog:
    """One JSON object per line: step, loss, lr, temperature, cycle, stage, draws.

    Args:
        path: the file; None logs nothing.
        first_step: first step of this run; later lines, of an interrupted run, are dropped.
    """

    def __init__(self, path: Path | None, first_step: int) -> None:
        self._path, self._file, self._board = path, None, None
        if path is not None:
            self._attempt(self._open, path, first_step)

    def _open(self, path: Path, first_step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in parts_of(path.parent, path.name):  # of a killed run: the chain is locked
            part.unlink(missing_ok=True)
        kept = [row for row in read_rows(path) if row["step"] < first_step]
        text = "".join(json.dumps(row) + "\n" for row in kept)
        atomic_write(path, lambda temporary: temporary.write_text(text))
        self._file = path.open("a")
        with suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

            self._board = SummaryWriter(str(path.with_suffix("")), purge_step=first_step)

    def write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            self._attempt(self._file.write, json.dumps(row) + "\n")
        for name in ("loss", "lr", "temperature", "draws"):
            if self._board is not None:  # an attempt that fails closes it
                self._attempt(self._board.add_scalar, name, row[name], row["step"])

    def flush(self) -> None:
        if self._file is not None:
            self._attempt(self._file.flush)

    def close(self) -> None:
        """Close the log; lines that cannot be written any more are dropped."""
        for opened in (self._file, self._board):
            if opened is not None:
                with suppress(OSError):  # a full disk, which was reported already
                    opened.close()
        self._file = self._board = None

    def _attempt(self, action: Callable[..., object], *args: Any) -> None:
        """Run `action`; if it fails, warn, and log nothing from then on."""
        try:
            action(*args)
        except OSError as error:
            words = f"{self._path}: the run continues without its log: {reason_of(error)}"
            warn(words, StoreWarning)
            self.close()
