"""Scalars of a run: a log file, and TensorBoard events if it is installed."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csgmcmc.files import atomic_write


class ScalarLog:
    """One JSON object per line: step, loss, lr, temperature, cycle, stage, draws.

    Args:
        path: the file; None logs nothing.
        first_step: first step of this run; later lines, of an interrupted run, are dropped.
    """

    def __init__(self, path: Path | None, first_step: int) -> None:
        self._file = None
        self._board = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = [row for row in _rows(path) if row["step"] < first_step]
        text = "".join(json.dumps(row) + "\n" for row in kept)
        atomic_write(path, lambda temporary: temporary.write_text(text))
        self._file = path.open("a")
        self._board = _tensorboard(path.with_suffix(""), first_step)

    def write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
        if self._board is not None:
            for name in ("loss", "lr", "temperature", "draws"):
                self._board.add_scalar(name, row[name], row["step"])

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # a full disk, which was reported already
                self._file.close()
        if self._board is not None:
            self._board.close()


def read_scalars(path: str | Path) -> dict[str, NDArray]:
    """The columns of a log, by name."""
    rows = _rows(Path(path))
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else {})}


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a killed run
            break
    return rows


def _tensorboard(folder: Path, first_step: int) -> Any | None:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=first_step)
