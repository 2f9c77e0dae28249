"""Checkpoints of all processes of a chain, from which another number of them can go on.

    checkpoints/0000.pt       what the first process holds, and the random states of all
    checkpoints/0000-000000120-00001-of-00002.safetensors, ...
                              of a sharded model: the shards of each process, with their index

The first process writes the `.pt` file when the shards of all are on the disk: that commits it.
"""

from typing import Any

import torch

from csgmcmc.chain.checkpoint import Checkpoints
from csgmcmc.draws.sharded import ShardedTensors, index_name, write_shards
from csgmcmc.draws.tensors import CheckedFiles
from csgmcmc.files import readable_io_errors
from csgmcmc.randomness import draw_others
from csgmcmc.shards import is_sharded, mesh_of
from csgmcmc.stepper import Stepper
from csgmcmc.stepper.loading import refuse_other_states
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


def restore(checkpoints: Checkpoints, stepper: Stepper, state: dict[str, Any]) -> None:
    """Go on from a checkpoint, which as many processes have made or others; all call this."""
    layout = stepper.layout
    with refuse_other_states():
        stepper.check_state(state)
        own = _own_state(checkpoints, stepper, state)
    stepper.load_state_dict(own, exact=state.get("processes") in (None, _processes(stepper)))
    if layout.replica_id > len(state.get("others", ())):  # a process that was not there before
        draw_others(layout.replica_id)


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
    """What decides how sums over processes and threads are rounded."""
    return [stepper.layout.replicas, is_sharded(stepper.model), torch.get_num_threads()]
