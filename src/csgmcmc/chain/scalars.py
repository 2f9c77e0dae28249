"""Scalars of a run: a log file, and TensorBoard events if it is installed.

They are for plots only. So whatever is wrong with them, a full disk or a damaged log, is a warning,
and the run goes on: draws and checkpoints, which it cannot do without, have errors of their own.
"""

import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from csgmcmc.errors import StoreWarning
from csgmcmc.files import atomic_write, parts_of, reason_of
from csgmcmc.scalars import read_rows


class ScalarLog:
    """One JSON object per line: step, loss, lr, temperature, cycle, stage, draws.

    Args:
        path: the file; None logs nothing.
        first_step: first step of this run; later lines, of an interrupted run, are dropped.
    """

    def __init__(self, path: Path | None, first_step: int) -> None:
        self._file = None
        self._board = None
        if path is not None:
            self._path = path
            self._attempt(lambda: self._open(path, first_step))

    def _open(self, path: Path, first_step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in parts_of(path.parent, path.name):  # of a killed run: the chain is locked
            part.unlink(missing_ok=True)
        kept = [row for row in read_rows(path) if row["step"] < first_step]
        text = "".join(json.dumps(row) + "\n" for row in kept)
        atomic_write(path, lambda temporary: temporary.write_text(text))
        self._file = path.open("a")
        self._board = _tensorboard(path.with_suffix(""), first_step)

    def write(self, row: dict[str, Any]) -> None:
        file = self._file
        if file is not None:  # asked here: every step of a run without a log comes by
            self._attempt(lambda: self._write(file, row))

    def _write(self, file: TextIO, row: dict[str, Any]) -> None:
        file.write(json.dumps(row) + "\n")
        if self._board is not None:
            for name in ("loss", "lr", "temperature", "draws"):
                self._board.add_scalar(name, row[name], row["step"])

    def flush(self) -> None:
        if self._file is not None:
            self._attempt(self._file.flush)

    def close(self) -> None:
        """End the log; what cannot be written any more is dropped."""
        for opened in (self._file, self._board):
            if opened is not None:
                with suppress(OSError):  # a full disk, which was reported already
                    opened.close()
        self._file = self._board = None

    def _attempt(self, action: Callable[[], object]) -> None:
        """Do something that may fail, once: after that nothing is logged any more."""
        try:
            action()
        except OSError as error:
            warnings.warn(
                f"{self._path}: the run goes on without its log: {reason_of(error)}",
                StoreWarning,
                stacklevel=3,
            )
            self.close()


def _tensorboard(folder: Path, first_step: int) -> Any | None:
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=first_step)
