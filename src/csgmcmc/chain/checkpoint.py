"""Checkpoints: the last two states from which a chain can resume bit for bit."""

import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from csgmcmc.draws.lock import Lock
from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.files import (
    EXHAUSTED,
    create_anew,
    file_size,
    flush,
    make_folder,
    readable_io_errors,
    reason_of,
)

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
        self._newest_is_usable = True
        self._was_read_back = False
        self._lock: Lock | None = None

    def lock(self) -> None:
        """Become the only process that writes them, until `close`; `LockedError` if it is not."""
        with readable_io_errors(self.newest.parent, "locking the checkpoints"):
            make_folder(self.newest.parent)
            self._lock = Lock(self.newest.with_suffix(".lock"), f"{self.newest}")

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def save(self, state: dict[str, Any]) -> None:
        """Save `state`, which contains only tensors and plain values."""
        folder = self.newest.parent
        temporary = self.newest.with_name(f"{self.newest.name}.part")
        with readable_io_errors(folder, "writing a checkpoint"):
            make_folder(folder)
            try:
                _write({**state, "format": FORMAT}, temporary)
                if not self._was_read_back:  # the first tells whether the others can be read
                    _read_back(temporary)
                    self._was_read_back = True
                # A resumed run that saves a step again must not discard the older checkpoint. And
                # where the newest is damaged, the older one is the only good one.
                is_later = state["taken"] > self._newest_step
                if is_later and self._newest_is_usable and self.newest.exists():
                    self.newest.replace(self.previous)
                temporary.replace(self.newest)
                flush(folder)
                self._newest_step, self._newest_is_usable = state["taken"], True
                self._remove_old_shards()
            finally:
                temporary.unlink(missing_ok=True)

    def load_all(self) -> list[dict[str, Any]]:
        """The checkpoints that can be used, newest first; others are named in a warning.

        If there are some and none can be used, it is a `StoreError`.
        """
        states: list[dict[str, Any]] = []
        refusals: dict[Path, str] = {}
        for path in (self.newest, self.previous):
            try:
                if path.exists():
                    states.append(_read(path))
            except StoreError as error:
                refusals[path] = str(error)
        if refusals and not states:
            raise StoreError("; and ".join(refusals.values()))
        for refusal in refusals.values():
            warnings.warn(f"{refusal}; the other one is used", StoreWarning, stacklevel=2)
        self._newest_is_usable = self.newest not in refusals
        self._newest_step = max((state["taken"] for state in states), default=-1)
        return states

    def stem(self, step: int) -> str:
        """How the names of a checkpoint's shards begin, if it has some."""
        return f"{self.newest.stem}-{step:09d}"

    def note(self, step: int) -> None:
        """Another process has saved the newest one."""
        self._newest_step = step

    def reject_newest(self) -> None:
        """The newest cannot be used: it must not replace the one before."""
        self._newest_is_usable = False

    def _remove_old_shards(self) -> None:
        """Remove shards of checkpoints that are no longer there, or were never completed."""
        found = list(self.newest.parent.glob(f"{self.newest.stem}-*.safetensors*"))
        if not found:
            return
        steps = [_step_of(path) for path in (self.newest, self.previous)]
        stems = tuple(self.stem(step) for step in steps if step is not None)
        for path in found:
            if not path.name.startswith(stems):
                path.unlink(missing_ok=True)

    @property
    def newest_step(self) -> int:
        """Steps that the chain had taken at the newest; -1 without any."""
        return self._newest_step

    def exist(self) -> bool:
        return self.newest.exists() or self.previous.exists()


def steps_at_checkpoint(folder: Path, chain_id: int) -> int | None:
    """Steps that a chain in `folder` had taken at its newest checkpoint; None if there is none."""
    found = Checkpoints(folder / "checkpoints", f"{chain_id:04d}")
    steps = [_step_of(path) for path in (found.newest, found.previous)]
    return next((step for step in steps if step is not None), None)


def _step_of(path: Path) -> int | None:
    # A damaged one is an error for who resumes, not for who looks.
    with suppress(Exception):
        return int(torch.load(path, weights_only=True, map_location="cpu", mmap=True)["taken"])
    return None


def _read(path: Path) -> dict[str, Any]:
    """A checkpoint; `StoreError` says why it cannot be used."""
    try:
        _check_sums(path)
        state = torch.load(path, weights_only=True, map_location="cpu")
    except MemoryError:
        raise
    except Exception as error:  # there are many, for files that are not what they should be
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        raise StoreError(f"{path} is damaged: {_first_words(error)}") from error
    if isinstance(state, dict) and state.get("format") != FORMAT:
        made = "0.1" if "format" not in state else "a newer version"
        raise StoreError(
            f"{path} was made by csgmcmc {made}, and this version cannot resume it: finish the run "
            "with that version, or begin another chain; its draws can be read"
        )
    if not isinstance(state, dict) or type(state.get("taken")) is not int:
        raise StoreError(f"{path} is damaged: it does not say its step")
    for name, size in state.get("shards", {}).get("sizes", {}).items():
        if file_size(path.with_name(name)) != size:
            raise StoreError(f"{path} is damaged: {name} is missing or truncated")
    return state


def _read_back(path: Path) -> None:
    """Raise if a checkpoint that was just written can never be read."""
    try:
        _read(path)
    except StoreError as error:
        raise StoreError(
            "no checkpoint of this run could be read again: options of the sampler and states of "
            f"the loader must be tensors and plain values ({_first_words(error.__cause__)})"
        ) from error


def _first_words(error: BaseException | None) -> str:
    """What an error of torch says, which has many lines."""
    text = reason_of(error) if isinstance(error, Exception) else ""
    what = text.rpartition("WeightsUnpickler error: ")[2].strip().partition("\n")[0]
    return what[:200] or type(error).__name__


def _write(state: dict[str, Any], path: Path) -> None:
    try:
        create_anew(path)
        with path.open("wb") as file:
            torch.save(state, file)
        flush(path)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch's writer hides the system's error
            raise error.__context__ from None
        raise


def _check_sums(path: Path) -> None:
    """Raise if a part of a checkpoint, which is a zip file, does not match its checksum."""
    with zipfile.ZipFile(path) as file:
        damaged = file.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"the checksum of {damaged} does not match")
