"""Checkpoints: all that a chain needs to go on bit for bit, the last two of them."""

import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.files import flush, readable_io_errors

FORMAT = 2
"""Of checkpoints; 0.1.0 wrote none."""


class Checkpoints:
    """The newest two checkpoints of one chain, as `NAME.pt` and `NAME.previous.pt` in a folder.

    A new one is written aside and flushed before it takes the place of the newest, so that there
    is always a whole one, whenever the process is killed.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.newest = folder / f"{name}.pt"
        self.previous = folder / f"{name}.previous.pt"
        self._newest_step = -1

    def save(self, state: dict[str, Any]) -> None:
        """Keep `state`, which holds tensors and plain values only."""
        folder = self.newest.parent
        aside = self.newest.with_name(f"{self.newest.name}.part")
        with readable_io_errors(folder, "writing a checkpoint"):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                _write({**state, "format": FORMAT}, aside)
                # A step that is saved again, in a resumed run, must not push out an older one:
                # it may be the last that all replicas of a chain have in common.
                if self.newest.exists() and state["taken"] > self._newest_step:
                    self.newest.replace(self.previous)
                aside.replace(self.newest)
                flush(folder)
                self._newest_step = state["taken"]
            finally:
                aside.unlink(missing_ok=True)

    def load_all(self) -> list[dict[str, Any]]:
        """The checkpoints that are whole, the newest first; others are named in a warning."""
        paths = [path for path in (self.newest, self.previous) if path.exists()]
        whole = [path for path in paths if _is_whole(path)]
        for path in paths:
            if path not in whole:
                warnings.warn(f"{path} is damaged and passed over", StoreWarning, stacklevel=2)
        if paths and not whole:
            raise StoreError(f"{self.newest} is damaged, and so is the one before it")
        states = [_read(path) for path in whole]
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
        if isinstance(error.__context__, OSError):  # torch's writer hides what the system said
            raise error.__context__ from None
        raise


def _is_whole(path: Path) -> bool:
    """Whether all parts of a checkpoint, a zip file, match their checksums."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (zipfile.BadZipFile, OSError, EOFError):
        return False
