"""Checkpoints: the last two states of a chain, from which it resumes bit for bit.

    checkpoints/0000.pt            state of the first process, and random states of all
    checkpoints/0000.previous.pt   the one before
    checkpoints/0000-000000120-9f86d081.safetensors
                                   for a sharded model: its tensors, gathered one at a time

The `.pt` file is written last and names the file of tensors: that commits both. Any number of
processes can resume from them.
"""

import secrets
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from csgmcmc.arguments import shown
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws.tensors import CheckedFiles, part_of, read_tensors, write_tensors
from csgmcmc.errors import SettingsMismatchError, StoreError, StoreWarning, warn
from csgmcmc.files import (
    EXHAUSTED,
    flush,
    make_folder,
    readable_io_errors,
    reason_of,
    take_lock,
)
from csgmcmc.randomness import draw_others
from csgmcmc.shards import (
    Named,
    do_together,
    gather_to_first,
    is_shard,
    is_sharded,
    local_shard,
    mesh_of,
)

if TYPE_CHECKING:
    from csgmcmc.loop.stepper import Stepper

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
        self._steps: dict[Path, int] = {}  # steps taken at those that can be used
        self._was_read_back = False
        self._lock: FileLock | None = None

    @property
    def newest_step(self) -> int:
        """Steps that the chain had taken at the newest; -1 without any."""
        return max(self._steps.values(), default=-1)

    def lock(self) -> None:
        """Become the only process that writes them, until `close`; otherwise `LockedError`."""
        with readable_io_errors(self.newest.parent, "locking the checkpoints"):
            make_folder(self.newest.parent)
            self._lock = take_lock(self.newest.with_suffix(".lock"), f"{self.newest}")

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
                    _check_readable(temporary)
                    self._was_read_back = True
                # A resumed run that saves a step again must not discard the older checkpoint. And
                # where the newest is damaged, the older one is the only good one.
                if state["taken"] > self.newest_step and self.newest in self._steps:
                    self.newest.replace(self.previous)
                temporary.replace(self.newest)
                flush(folder)
                self.note(state["taken"])
            finally:
                temporary.unlink(missing_ok=True)
            # Tensors of checkpoints that were replaced, or never completed.
            found = list(folder.glob(f"{self.newest.stem}-*.safetensors*"))
            states = [_peek(path) for path in (self.newest, self.previous)] if found else []
            used = {state["sharded"]["file"] for state in states if "sharded" in state}
            for path in found:
                if path.name not in used:
                    path.unlink(missing_ok=True)

    def note(self, step: int) -> None:
        """Note that the newest one was saved, by this process or another."""
        self._steps = {self.newest: step}

    def load(self, load: Callable[[dict[str, Any]], None], layout: ProcessLayout) -> Path | None:
        """Call `load` with the newest checkpoint that all processes of a chain see; its path.

        If it raises, it is called with the one before: a file that can be read may still hold a
        wrong state. If it raises for both, the first error is raised.
        """
        states = {state["taken"]: state for state in self.load_all()}
        gathered = layout.gather(set(states))
        common = set.intersection(*gathered)
        if any(gathered) and not common:
            raise StoreError(
                f"chain {layout.chain_id} has no checkpoint that all its processes can read, "
                f"only those of steps {gathered}: all processes must see the same folder"
            )
        refusals: list[StoreError | SettingsMismatchError] = []
        for step in sorted(common, reverse=True):
            path = next(path for path, found in self._steps.items() if found == step)
            refusal = None
            try:
                load(states[step])
            except SettingsMismatchError as error:
                refusal = SettingsMismatchError(f"{path}: {error}")
            except StoreError as error:  # names the file of tensors
                refusal = error
            except torch.OutOfMemoryError:
                raise
            except (ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
                refusal = StoreError(f"{path} is damaged: {_first_words(error)}")
            elsewhere = [words for words in layout.gather(refusal and str(refusal)) if words]
            if not elsewhere:
                _warn_of_others(refusals)
                return path
            refusals.append(refusal or StoreError(elsewhere[0]))
            self._steps = {path: found for path, found in self._steps.items() if found != step}
        for each in sorted(refusals, key=lambda each: not isinstance(each, SettingsMismatchError)):
            raise each
        return None

    def load_all(self) -> list[dict[str, Any]]:
        """The checkpoints that can be read, newest first; others are named in a warning.

        Raises a `StoreError` if there are some and none can be read.
        """
        states: dict[Path, dict[str, Any]] = {}
        refusals: list[StoreError] = []
        for path in (self.newest, self.previous):
            try:
                if path.exists():
                    states[path] = _read(path)
            except StoreError as error:
                refusals.append(error)
        if refusals and not states:
            raise StoreError("; and ".join(map(str, refusals)))
        _warn_of_others(refusals)
        self._steps = {path: state["taken"] for path, state in states.items()}
        return list(states.values())


# All processes of a chain


def save_together(checkpoints: Checkpoints, stepper: "Stepper", more: dict[str, Any]) -> None:
    """Save the state of a chain, and `more` of the first process; all its processes call this."""
    layout, state, shards = stepper.layout, {**stepper.shared_state(), **more}, {}

    def without_shards(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
        shards.update({f"{prefix}.{k}": value for k, value in values.items() if is_shard(value)})
        return {name: value for name, value in values.items() if not is_shard(value)}

    state["model"] = without_shards("model", state["model"])
    states = state["sampler"]["state"].items()
    states = {number: without_shards(f"sampler.{number}", values) for number, values in states}
    state["sampler"] = {**state["sampler"], "state": states}
    state["others"] = layout.gather(state["sources"])[1:]
    state["processes"] = _processes(stepper)
    path = checkpoints.newest

    def write_shards(contents: Named) -> dict[str, str]:
        # The name is new: a run that saves a step again replaces nothing that is in use.
        name = f"{path.stem}-{state['taken']:09d}-{secrets.token_hex(4)}.safetensors"
        with readable_io_errors(path.parent, "writing a checkpoint"):
            make_folder(path.parent)
            checksum = write_tensors(path.with_name(name), shards, contents=contents)
        return {"file": name, "checksum": checksum}

    if shards:
        state["sharded"] = gather_to_first(mesh_of(shards.values()), shards, write_shards)
    do_together(layout.mesh, lambda: checkpoints.save(state) if layout.writes else None)
    checkpoints.note(state["taken"])


def restore(checkpoints: Checkpoints, stepper: "Stepper", state: dict[str, Any]) -> None:
    """Resume from a checkpoint written by any number of processes; all processes call this.

    Each takes its own part of the tensors, whichever of them were sharded.
    """
    layout = stepper.layout
    stepper.check_state(state)
    shards: dict[str, Tensor] = {}
    if "sharded" in state:
        path = checkpoints.newest.with_name(state["sharded"]["file"])
        if layout.writes:  # one process reads all of the file
            shards = CheckedFiles().read(path, state["sharded"]["checksum"])
        else:
            shards = read_tensors(path)
    stored = {**{f"model.{name}": value for name, value in state["model"].items()}, **shards}
    own = all_tensors(stepper.model).items()
    tensors = {name: part_of(stored, f"model.{name}", value) for name, value in own}
    states = {number: dict(values) for number, values in state["sampler"]["state"].items()}
    for key, value in shards.items():
        if key.startswith("sampler."):
            _, number, name = key.split(".", 2)
            states.setdefault(int(number), {})[name] = value
    for number, param in enumerate(stepper.sampled()):
        values = states.get(number, {})
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == param.shape:
                part = part_of(values, name, param)
                values[name] = part.clone() if shards else part  # not a part of the mapped file
    every = [state["sources"], *state.get("others", ())]
    own_parts = {
        "model": tensors,
        "sampler": {**state["sampler"], "state": states},
        "sources": every[layout.replica_id % len(every)],
    }
    is_exact = state.get("processes") in (None, _processes(stepper))
    stepper.load_state_dict({**state, **own_parts}, exact=is_exact)
    if layout.replica_id >= len(every):  # a process that was not there before
        draw_others(layout.replica_id)


def _processes(stepper: "Stepper") -> list[Any]:
    """What decides how sums over processes and threads are rounded."""
    return [stepper.layout.replicas, is_sharded(stepper.model), torch.get_num_threads()]


# Model and sampler


def all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All tensors of a model, including buffers that its state_dict leaves out."""
    return {**dict(model.named_buffers()), **model.state_dict()}


def copy_weights(model: nn.Module, saved: Any) -> None:
    """Copy all tensors of a state into `model`; nothing is changed if one does not fit."""
    own = {name: local_shard(value) for name, value in all_tensors(model).items()}
    for name, value in own.items():
        if not isinstance(saved[name], Tensor) or saved[name].shape != value.shape:
            wanted = f"{name} of the model must be a tensor of shape {tuple(value.shape)}"
            raise ValueError(f"{wanted}, got {shown(saved[name])}")  # it might be broadcast
    with torch.no_grad():
        for name, value in own.items():
            value.copy_(saved[name])


def load_sampler(sampler: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load the state of a sampler; that of a sharded parameter is sharded again."""
    sampler.load_state_dict(saved)
    params: list[Any] = [param for group in sampler.param_groups for param in group["params"]]
    for param in filter(is_shard, params):
        own, mesh = sampler.state.get(param, {}), param.device_mesh
        whole = {"run_check": False, "shape": param.shape, "stride": param.stride()}
        for name, value in own.items():
            if isinstance(value, Tensor) and value.ndim and not is_shard(value):
                own[name] = DTensor.from_local(value, mesh, param.placements, **whole)


# Files


def steps_at_checkpoint(folder: Path, chain_id: int) -> int | None:
    """Steps that a chain in `folder` had taken at its newest checkpoint; None if there is none."""
    found = Checkpoints(folder / "checkpoints", f"{chain_id:04d}")
    states = [_peek(path) for path in (found.newest, found.previous)]
    return next((int(state["taken"]) for state in states if "taken" in state), None)


def _peek(path: Path) -> dict[str, Any]:
    """A checkpoint without reading its tensors; empty if it is missing or damaged."""
    with suppress(Exception):  # a damaged one is an error for the run that resumes from it
        return dict(torch.load(path, weights_only=True, map_location="cpu", mmap=True))
    return {}


def _read(path: Path) -> dict[str, Any]:
    """A checkpoint; `StoreError` says why it cannot be used."""
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
        state = torch.load(path, weights_only=True, map_location="cpu")
    except MemoryError:
        raise
    except Exception as error:  # damaged files raise errors of many types
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        raise StoreError(f"{path} is damaged: {_first_words(error)}") from error
    if damaged is not None:
        raise StoreError(f"{path} is damaged: the checksum of {damaged} does not match")
    if isinstance(state, dict) and (state.get("format") != FORMAT or "shards" in state):
        raise StoreError(
            f"{path} was made by csgmcmc 0.1, by 0.2 with a sharded model, or by a newer version: "
            "finish the run with that version, or begin another chain; its draws can be read"
        )
    if not isinstance(state, dict) or type(state.get("taken")) is not int or state["taken"] < 0:
        raise StoreError(f"{path} is damaged: it does not say its step")
    return state


def _check_readable(path: Path) -> None:
    try:
        _read(path)
    except StoreError as error:
        raise StoreError(
            "no checkpoint of this run could be read again: options of the sampler and generators "
            f"must be tensors and plain values ({_first_words(error.__cause__)})"
        ) from error


def _first_words(error: BaseException | None) -> str:
    """The first line of an error of torch."""
    text = reason_of(error) if isinstance(error, Exception) else ""
    what = text.rpartition("WeightsUnpickler error: ")[2].strip().partition("\n")[0]
    return what[:200] or type(error).__name__


def _warn_of_others(refusals: Sequence[Exception]) -> None:
    """Name checkpoints that cannot be used, where another one can."""
    for each in refusals:
        warn(f"{each}; the other one is used", StoreWarning)


def _write(state: dict[str, Any], path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        with path.open("wb") as file:
            torch.save(state, file)
        flush(path)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch's writer hides the system's error
            raise error.__context__ from None
        raise
