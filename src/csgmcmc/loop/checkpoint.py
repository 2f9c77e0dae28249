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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import torch
from filelock import FileLock
from rich.console import Console
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from csgmcmc.arguments import counted
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import DrawStore
from csgmcmc.draws.tensors import CheckedFiles, part_of, read_tensors, write_tensors
from csgmcmc.errors import SettingsMismatchError, StoreError, StoreWarning, warn
from csgmcmc.files import flush, make_folder, readable_io_errors, take_lock
from csgmcmc.randomness import draw_others
from csgmcmc.shards import Named, do_together, gather_to_first, is_shard, local_shard, mesh_of

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
        self.last: Path | None = None
        """The checkpoint that this process has loaded or saved last."""
        self.last_step = -1  # steps that the chain had taken at it
        self._was_read_back = False

    def lock(self) -> FileLock:
        """Become the only process that writes them, until it releases the lock."""
        with readable_io_errors(self.newest.parent, "locking the checkpoints"):
            make_folder(self.newest.parent)
            return take_lock(self.newest.with_suffix(".lock"), f"{self.newest}")

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
                if self.last == self.newest and state["taken"] > self.last_step:
                    self.newest.replace(self.previous)
                temporary.replace(self.newest)
                flush(folder)
            finally:
                temporary.unlink(missing_ok=True)
            self.note(self.newest, state["taken"])
            # Tensors of checkpoints that were replaced, or never completed.
            found = self._tensor_files()
            states = [_peek(path) for path in (self.newest, self.previous)] if found else []
            used = {state["sharded"]["file"] for state in states if "sharded" in state}
            for path in found:
                if path.name not in used:
                    path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete both checkpoints; called with their lock held."""
        for path in (self.previous, self.newest, *self._tensor_files()):
            path.unlink(missing_ok=True)

    def _tensor_files(self) -> list[Path]:
        return list(self.newest.parent.glob(f"{self.newest.stem}-*.safetensors*"))

    def note(self, path: Path, step: int) -> None:
        """Note which checkpoint was loaded or saved last, by this process or another."""
        self.last, self.last_step = path, step

    def load(
        self, load: Callable[[dict[str, Any]], None], layout: ProcessLayout
    ) -> dict[str, Any] | None:
        """Call `load` with the newest checkpoint, and return it; None where there is none.

        If it cannot be read, or `load` raises, in any process of the chain, all of them load the
        one before. All processes must call this.
        """
        refusals: list[StoreError | SettingsMismatchError] = []
        for path in (self.newest, self.previous):
            state, taken, refusal = None, None, None
            try:
                if path.exists():
                    state = _read(path)
                    load(state)
                    taken = state["taken"]
            except SettingsMismatchError as error:
                refusal = SettingsMismatchError(f"{path}: {error}")
            except StoreError as error:
                refusal = error
            except (MemoryError, torch.OutOfMemoryError):
                raise
            except Exception as error:  # damaged files raise errors of many types
                refusal = StoreError(f"{path} is damaged: {_first_words(error)}")
            every = layout.gather((taken, refusal and str(refusal)))
            steps, words = {each[0] for each in every}, [each[1] for each in every if each[1]]
            if not words and len(steps) > 1:
                words = [f"{path} is not the same for all processes: they must see one folder"]
            if words:
                refusals.append(refusal or StoreError(words[0]))
            elif taken is not None:
                for each in refusals:
                    warn(f"{each}; the other one is used", StoreWarning)
                self.note(path, taken)
                return state
        for each in refusals:
            if isinstance(each, SettingsMismatchError):
                raise each
        if refusals:
            raise StoreError("; and ".join(map(str, refusals)))
        return None


# All processes of a chain


def save_together(checkpoints: Checkpoints, stepper: "Stepper", more: dict[str, Any]) -> None:
    """Save the state of a chain, and `more` of the first process; all its processes call this."""
    layout, path = stepper.layout, checkpoints.newest
    shards: dict[str, Tensor] = {}

    def set_aside(keys: Any, leaf: Any) -> Any:
        if not is_shard(leaf):
            return leaf
        name = pytree.keystr(keys)  # takes the place of the tensor
        shards[name] = leaf
        return name

    def write_shards(contents: Named) -> dict[str, str]:
        # The name is new: a run that saves a step again replaces nothing that is in use.
        name = f"{path.stem}-{stepper.taken:09d}-{secrets.token_hex(4)}.safetensors"
        with readable_io_errors(path.parent, "writing a checkpoint"):
            make_folder(path.parent)
            checksum = write_tensors(path.with_name(name), shards, contents=contents)
        return {"file": name, "checksum": checksum}

    state = pytree.tree_map_with_path(set_aside, {**stepper.state_dict(), **more})
    state["others"] = layout.gather(state["sources"])[1:]
    if shards:
        state["sharded"] = gather_to_first(mesh_of(shards.values()), shards, write_shards)
    do_together(layout.mesh, lambda: checkpoints.save(state) if layout.writes else None)
    checkpoints.note(path, state["taken"])


def delete_together(
    checkpoints: Checkpoints, stepper: "Stepper", log: Path | None, shown: bool
) -> None:
    """Delete what a chain has kept, after saying what that is; all its processes call this."""
    if shown:
        kept = sum(len(stepper.draws.of_chain(chain_id)) for chain_id in stepper.chain_ids)
        words = f"chain {stepper.chain_id}: deleting {counted(kept, 'draw')}, checkpoints and log"
        Console(stderr=True).print(f"{words} in {log and log.parents[1]}", soft_wrap=True)

    def delete() -> None:
        checkpoints.delete()  # first: what is left cannot be resumed
        for chain_id in stepper.chain_ids:
            if isinstance(stepper.draws, DrawStore):
                stepper.draws.delete_chain(chain_id)
        if log is not None:
            log.unlink(missing_ok=True)

    do_together(stepper.layout.mesh, lambda: delete() if stepper.layout.writes else None)


def restore(checkpoints: Checkpoints, stepper: "Stepper", state: dict[str, Any]) -> None:
    """Resume from a checkpoint written by any number of processes; all processes call this."""
    layout = stepper.layout
    if "sharded" in state:
        path = checkpoints.newest.with_name(state["sharded"]["file"])
        if layout.writes:  # one process reads all of the file
            shards = CheckedFiles().read(path, state["sharded"]["checksum"])
        else:
            shards = read_tensors(path)
        state = pytree.tree_map_only(str, lambda name: shards.get(name, name), state)
    every = [state["sources"], *state.get("others", ())]
    stepper.load_state_dict({**state, "sources": every[layout.replica_id % len(every)]})
    if layout.replica_id >= len(every):  # a process that was not there before
        draw_others(layout.replica_id)


# Model and sampler


def all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All tensors of a model, including buffers that its state_dict leaves out."""
    return {**dict(model.named_buffers()), **model.state_dict()}


def float_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The floating point buffers that a draw keeps, by name."""
    kept = model.state_dict()
    for name, value in model.named_buffers():
        if name in kept and value.is_floating_point():
            values = local_shard(value.detach())
            yield name, values.float() if values.dtype.itemsize == 1 else values


@torch.no_grad()
def copy_weights(model: nn.Module, saved: dict[str, Tensor]) -> None:
    """Copy all tensors of a state, whole or sharded as those of `model`, into `model`."""
    for name, value in all_tensors(model).items():
        local_shard(value).copy_(_own_part(saved, name, value))


def load_sampler(sampler: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load the state of a sampler; that of a sharded parameter is sharded again."""
    params: list[Any] = [param for group in sampler.param_groups for param in group["params"]]
    states = {number: dict(values) for number, values in saved["state"].items()}
    for number, values in states.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == params[number].shape:
                values[name] = _own_part(values, name, params[number]).clone()  # not a mapped file
    sampler.load_state_dict({**saved, "state": states})
    for param in filter(is_shard, params):
        from torch.distributed.tensor import DTensor  # noqa: PLC0415  (slow to import)

        own, mesh = sampler.state.get(param, {}), param.device_mesh
        whole = {"run_check": False, "shape": param.shape, "stride": param.stride()}
        for name, value in own.items():
            if isinstance(value, Tensor) and value.ndim:
                own[name] = DTensor.from_local(value, mesh, param.placements, **whole)


def _own_part(saved: Mapping[str, Tensor], name: str, like: Tensor) -> Tensor:
    """The part of a saved tensor, whole or sharded, that this process holds of `like`."""
    value = saved[name]
    return local_shard(value) if is_shard(value) else part_of(saved, name, like)


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
    """A checkpoint; an error of any type if it is damaged."""
    with zipfile.ZipFile(path) as file:
        if (damaged := file.testzip()) is not None:
            raise ValueError(f"the checksum of {damaged} does not match")
    state = torch.load(path, weights_only=True, map_location="cpu")
    if state.get("format") != FORMAT or "shards" in state:
        raise StoreError(
            f"{path} was made by csgmcmc 0.1, by 0.2 with a sharded model, or by a newer version: "
            "finish the run with that version, or begin another chain; its draws can be read"
        )
    return state


def _check_readable(path: Path) -> None:
    try:
        torch.load(path, weights_only=True, map_location="cpu")
    except UnpicklingError as error:
        raise StoreError(
            "no checkpoint of this run could be read again: options of the sampler and generators "
            f"must be tensors and plain values ({_first_words(error)})"
        ) from error


def _first_words(error: Exception) -> str:
    """An error in one line: torch's have many."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    what = str(error).rpartition("WeightsUnpickler error: ")[2].strip().partition("\n")[0]
    return what[:200] or type(error).__name__


def _write(state: dict[str, Any], path: Path) -> None:
    try:
        with path.open("wb") as file:
            torch.save(state, file)
        flush(path)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch's writer hides the system's error
            raise error.__context__ from None
        raise
