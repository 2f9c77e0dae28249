"""Checkpoints of all processes of a chain, from which another number of them can go on.

    checkpoints/0000.pt       what the first process holds, and the random states of all
    checkpoints/0000-000000120-00001-of-00002.safetensors, ...
                              of a sharded model: the shards of each process, with their index

The first process writes the `.pt` file when the shards of all are on the disk: that commits it.
"""

import warnings
from typing import Any

from csgmcmc.chain.checkpoint import Checkpoints
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws.sharded import ShardedTensors, index_name, write_shards
from csgmcmc.draws.tensors import CheckedFiles
from csgmcmc.errors import StoreError, StoreWarning
from csgmcmc.files import readable_io_errors
from csgmcmc.randomness import draw_others
from csgmcmc.shards import is_sharded, mesh_of
from csgmcmc.stepper import Stepper
from csgmcmc.stepper.state import own_part, split_shards


def save_together(checkpoints: Checkpoints, stepper: Stepper, more: dict[str, Any]) -> None:
    """Save the state of a chain, and `more` of the first process; all its processes call this."""
    layout = stepper.layout
    state, shards = split_shards({**stepper.shared_state(), **more})
    state["others"] = layout.gather(state["sources"])[1:]
    state["processes"] = _processes(stepper)
    folder, written = checkpoints.newest.parent, None
    if (mesh := mesh_of(shards.values())) is not None:
        stem = checkpoints.stem(state["taken"])
        with readable_io_errors(folder, "writing a checkpoint"):
            written = write_shards(folder, stem, shards, mesh, None)
        state["shards"] = {"checksum": written.checksum, "sizes": written.sizes}

    def commit() -> None:
        if layout.writes:
            if written is not None:
                written.write_index(folder / index_name(checkpoints.stem(state["taken"])))
            checkpoints.save(state)

    layout.together(commit)
    checkpoints.note(state["taken"])


def restore_together(checkpoints: Checkpoints, stepper: Stepper) -> dict[str, Any] | None:
    """Load the last checkpoint that all processes can use, and return it; None without any."""
    layout = stepper.layout
    states = {state["taken"]: state for state in checkpoints.load_all()}
    while True:
        step = _agreed(layout, set(states))
        if step is None:
            return None
        state = states.pop(step)
        stepper.check_state(state)
        own, failure = None, None
        try:
            own = _own_state(checkpoints, stepper, state)
        except StoreError as error:
            failure = str(error)
        failures = [each for each in layout.gather(failure) if each is not None]
        if own is not None and not failures:
            break
        if not states:
            raise StoreError(failures[0])
        checkpoints.reject_newest()
        warnings.warn(f"{failures[0]}; the other one is used", StoreWarning, stacklevel=4)
    saved = 1 + len(state.get("others", ()))
    stepper.load_state_dict(own, exact=state.get("processes") in (None, _processes(stepper)))
    if layout.replica_id >= saved:  # a process that was not there before
        draw_others(layout.replica_id)
    return state


def _own_state(checkpoints: Checkpoints, stepper: Stepper, state: dict[str, Any]) -> dict[str, Any]:
    """What this process needs of a checkpoint."""
    shards = {}
    if "shards" in state:
        file = checkpoints.newest.parent / index_name(checkpoints.stem(state["taken"]))
        shards = ShardedTensors(file, state["shards"]["checksum"], CheckedFiles())
    own = own_part(state, shards, stepper.model, stepper.sampler)
    every = [state["sources"], *state.get("others", ())]
    own["sources"] = sources = every[stepper.layout.replica_id % len(every)]
    if len(every) != stepper.layout.replicas and sources["batches"] is not None:
        # What a loader says of itself is for as many processes; the number of batches is for all.
        own["sources"] = {**sources, "batches": {**sources["batches"], "loader": None}}
    return own


def _processes(stepper: Stepper) -> list[Any]:
    """What decides how sums over processes are rounded."""
    return [stepper.layout.replicas, is_sharded(stepper.model)]


def _agreed(layout: ProcessLayout, steps: set[int]) -> int | None:
    """The largest step for which all processes of the chain see a checkpoint."""
    gathered = layout.gather(steps)
    shared = set.intersection(*gathered)
    if not shared and any(gathered):
        raise StoreError(
            f"chain {layout.chain_id} has no checkpoint that all its processes can read, only "
            f"those of steps {gathered}: all processes must see the same folder"
        )
    return max(shared, default=None)
