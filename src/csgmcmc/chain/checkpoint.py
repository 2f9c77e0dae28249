"""Checkpoints: all that a chain needs to go on bit for bit, the last two of them."""

from pathlib import Path
from typing import Any

import torch

from csgmcmc.draws.store import explained
from csgmcmc.draws.tensors import flush


class Checkpoints:
    """The newest two checkpoints of one chain, as `NAME.pt` and `NAME.previous.pt` in a folder.

    A new one is written aside and flushed before it takes the place of the newest, so that there
    is always a whole one, whenever the process is killed.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.newest = folder / f"{name}.pt"
        self.previous = folder / f"{name}.previous.pt"

    def save(self, state: dict[str, Any]) -> None:
        """Keep `state`, which holds tensors and plain values only."""
        folder = self.newest.parent
        aside = self.newest.with_name(f"{self.newest.name}.part")
        with explained(folder, "writing a checkpoint"):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                _write(state, aside)
                if self.newest.exists():
                    self.newest.replace(self.previous)
                aside.replace(self.newest)
                flush(folder)
            finally:
                aside.unlink(missing_ok=True)

    def load_all(self) -> list[dict[str, Any]]:
        """The checkpoints that are there, the newest first."""
        paths = [path for path in (self.newest, self.previous) if path.exists()]
        return [torch.load(path, weights_only=True, map_location="cpu") for path in paths]

    def exist(self) -> bool:
        return self.newest.exists() or self.previous.exists()


def _write(state: dict[str, Any], path: Path) -> None:
    try:
        with path.open("wb") as file:
            torch.save(state, file)
        flush(path)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch's writer hides what the system said
            raise error.__context__ from None
        raise
