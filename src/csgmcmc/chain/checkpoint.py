"""Checkpoints: the last two states from which a chain can resume bit for bit."""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.files import flush, readable_io_errors

FORMAT = 2
"""Format number of checkpoints; those of 0.1.0 have none."""


class Checkpoints:
    """The newest two checkpoints of one chain, as `NAME.pt` and `NAME.previous.pt` in a folder.

    A new one is written to a temporary file and flushed before it replaces the newest. So there is
    always an intact one, whenever the process is killed.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.newest = folder / f"{name}.pt"
        self.previous = folder / f"{name}.previous.pt"
        self._newest_step = -1

    def save(self, state: dict[str, Any]) -> None:
        """Save `state`, which contains only tensors and plain values."""
        folder = self.newest.parent
        temporary = self.newest.with_name(f"{self.newest.name}.part")
        with readable_io_errors(folder, "writing a checkpoint"):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                _write({**state, "format": FORMAT}, temporary)
                # A resumed run that saves a step again must not discard the older checkpoint: that
                # may be the last one that all replicas of a chain have.
                if self.newest.exists() and state["taken"] > self._newest_step:
                    self.newest.replace(self.previous)
                temporary.replace(self.newest)
                flush(folder)
                self._newest_step = state["taken"]
            finally:
                temporary.unlink(missing_ok=True)

    def load_all(self) -> list[dict[str, Any]]:
        """The intact checkpoints, newest first; damaged ones are named in a warning."""
        paths = [path for path in (self.newest, self.previous) if path.exists()]
        intact = [path for path in paths if _is_intact(path)]
        for path in paths:
            if path not in intact:
                warnings.warn(f"{path} is damaged and skipped", StoreWarning, stacklevel=2)
        if paths and not intact:
            raise StoreError(f"{self.newest} is damaged, and so is the one before it")
        states = [_read(path) for path in intact]
        self._newest_step = max((state["taken"] for state in states), default=-1)
        return states

    def exist(self) -> bool:
        return self.newest.exists() or self.previous.exists()


def _read(path: Path) -> dict[str, Any]:
    state = torch.load(path, weights_only=True, map_location="cpu")
    if state.get("format") != FORMAT:
        made = "0.1" if "format" not in state else "a newer version"
        raise StoreError(
            f"{path} was made by csgmcmc {made}, and this version cannot resume it: finish the run "
            "with that version, or begin another chain; its draws can be read"
        )
    return state


def _write(state: dict[str, Any], path: Path) -> None:
    try:
        with path.open("wb") as file:
            torch.save(state, file)
        flush(path)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch's writer hides the system's error
            raise error.__context__ from None
        raise


def _is_intact(path: Path) -> bool:
    """Whether all parts of a checkpoint, which is a zip file, match their checksums."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError):
        return False
