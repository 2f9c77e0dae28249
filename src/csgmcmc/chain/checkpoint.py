"""Checkpoints: the last two states from which a chain can resume bit for bit."""

import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws.lock import Lock
from csgmcmc.errors import SettingsMismatchError, StoreError, StoreWarning
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
        self._steps: dict[Path, int] = {}  # that the chain had taken, at those that can be used
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
                is_later = state["taken"] > self.newest_step
                if is_later and self._newest_is_usable and self.newest.exists():
                    self.newest.replace(self.previous)
                temporary.replace(self.newest)
                flush(folder)
                self._steps, self._newest_is_usable = {self.newest: state["taken"]}, True
                self._remove_old_shards()
            finally:
                temporary.unlink(missing_ok=True)

    def load(self, load: Callable[[dict[str, Any]], None], layout: ProcessLayout) -> None:
        """Give `load` the newest checkpoint that all processes of a chain see, if there is one.

        If it refuses that, it is given the one before: a checkpoint that can be read may still hold
        something else than it should. If it refuses both, the first error is raised.
        """
        states = {state["taken"]: state for state in self.load_all()}
        refusals: list[StoreError | SettingsMismatchError] = []
        while (step := layout.agreed(set(states))) is not None:
            refusal = self._try(load, states.pop(step))
            elsewhere = [words for words in layout.gather(refusal and str(refusal)) if words]
            if not elsewhere:
                for each in refusals:
                    warnings.warn(f"{each}; the other one is used", StoreWarning, stacklevel=4)
                return
            refusals.append(refusal or StoreError(elsewhere[0]))
            self._forget(step)
        if refusals:
            others = [each for each in refusals if isinstance(each, SettingsMismatchError)]
            raise (others or refusals)[0]

    def _try(
        self, load: Callable[[dict[str, Any]], None], state: dict[str, Any]
    ) -> StoreError | SettingsMismatchError | None:
        """Why `load` refuses a state, or None."""
        path = next(path for path, step in self._steps.items() if step == state["taken"])
        try:
            load(state)
        except SettingsMismatchError as error:
            return SettingsMismatchError(f"{path}: {error}")
        except StoreError as error:  # of shards, which names them
            return error
        except ValueError as error:
            return StoreError(f"{path} is damaged: {error}")
        return None

    def _forget(self, step: int) -> None:
        """Use a checkpoint no more, and keep none in its place."""
        for path in [path for path, found in self._steps.items() if found == step]:
            del self._steps[path]
            self._newest_is_usable &= path != self.newest

    def load_all(self) -> list[dict[str, Any]]:
        """The checkpoints that can be read, newest first; others are named in a warning.

        If there are some and none can be read, it is a `StoreError`.
        """
        states: dict[Path, dict[str, Any]] = {}
        refusals: dict[Path, str] = {}
        for path in (self.newest, self.previous):
            try:
                if path.exists():
                    states[path] = _read(path)
            except StoreError as error:
                refusals[path] = str(error)
        if refusals and not states:
            raise StoreError("; and ".join(refusals.values()))
        for refusal in refusals.values():
            warnings.warn(f"{refusal}; the other one is used", StoreWarning, stacklevel=2)
        self._newest_is_usable = self.newest not in refusals
        self._steps = {path: state["taken"] for path, state in states.items()}
        return list(states.values())

    def stem(self, step: int) -> str:
        """How the names of a checkpoint's shards begin, if it has some."""
        return f"{self.newest.stem}-{step:09d}"

    def note(self, step: int) -> None:
        """Another process has saved the newest one."""
        self._steps, self._newest_is_usable = {self.newest: step}, True

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
        return max(self._steps.values(), default=-1)

    @property
    def newest_usable(self) -> Path | None:
        """The newest that can be used; None without any."""
        return max(self._steps, key=self._steps.__getitem__, default=None)

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
    if not isinstance(state, dict) or type(state.get("taken")) is not int or state["taken"] < 0:
        raise StoreError(f"{path} is damaged: it does not say its step")
    for name, size in _sizes_of_shards(path, state).items():
        if file_size(path.with_name(name)) != size:
            raise StoreError(f"{path} is damaged: {name} is missing or truncated")
    return state


def _sizes_of_shards(path: Path, state: dict[str, Any]) -> dict[str, int]:
    shards = state.get("shards", {"sizes": {}})
    sizes = shards.get("sizes") if isinstance(shards, dict) else None
    if not isinstance(sizes, dict) or not all(isinstance(name, str) for name in sizes):
        raise StoreError(f"{path} is damaged: it does not say the sizes of its shards")
    return sizes


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
