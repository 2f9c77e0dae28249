"""The tensors of a run: how they are taken for a checkpoint, and how they are loaded.

Of a sharded model, a checkpoint may be of one process, with its shards, or of all. That of all can
be loaded by another number of processes, each of which takes its own part of it.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils import _pytree as pytree

from csgmcmc.arguments import plain_value
from csgmcmc.draws.sharded import joined, part_of
from csgmcmc.shards import is_shard, local_shard
from csgmcmc.stepper.inputs import all_tensors
from csgmcmc.stepper.loading import copy_weights


def plain_state(state: dict[str, Any]) -> dict[str, Any]:
    """Tensors, which stay sharded, and plain values."""
    return pytree.tree_map(lambda x: x.detach() if isinstance(x, Tensor) else plain_value(x), state)


def local_state(state: dict[str, Any]) -> dict[str, Any]:
    """The same with the shards of this process."""
    return pytree.tree_map_only(Tensor, local_shard, state)


def load_tensors(model: nn.Module, sampler: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load model and sampler from a `local_state`."""
    copy_weights(model, state["model"])
    sampler.load_state_dict(state["sampler"])
    for param in _parameters(sampler):  # state that was sharded must be so again
        own = sampler.state.get(param, {})
        for name, value in own.items():
            if is_shard(param) and isinstance(value, Tensor) and value.ndim and not is_shard(value):
                own[name] = _shard_of(param, value)


def split_shards(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A state without the tensors that are sharded, and these by name."""
    shards = {f"model.{k}": value for k, value in state["model"].items() if is_shard(value)}
    model = {name: value for name, value in state["model"].items() if not is_shard(value)}
    sampler = state["sampler"]
    kept = dict(sampler["state"])
    for number, entries in kept.items():
        own = entries if isinstance(entries, dict) else {}
        if found := {name: value for name, value in own.items() if _is_sharded(value)}:
            shards |= {f"sampler.{number}.{name}": value for name, value in found.items()}
            kept[number] = {name: value for name, value in own.items() if name not in found}
    return {**state, "model": model, "sampler": {**sampler, "state": kept}}, shards


def own_part(
    state: dict[str, Any],
    shards: Mapping[str, Tensor],
    model: nn.Module,
    sampler: torch.optim.Optimizer,
) -> dict[str, Any]:
    """The part of all processes' state that this one needs, whatever was sharded when it was made.

    `state` and `shards` are those of `split_shards`, as they were read from the disk.
    """
    whole = {f"model.{name}": value for name, value in state["model"].items()}
    stored = joined(whole, shards)
    tensors = {name: part_of(stored, f"model.{name}", v) for name, v in all_tensors(model).items()}
    params = _parameters(sampler)
    states = dict(state["sampler"]["state"])
    for number, param in enumerate(params):
        prefix = f"sampler.{number}."
        sharded = {key.removeprefix(prefix): key for key in shards if key.startswith(prefix)}
        own = {name: part_of(shards, key, param) for name, key in sharded.items()}
        for name, value in states.get(number, {}).items():
            is_of_param = isinstance(value, Tensor) and value.shape == param.shape
            own[name] = part_of({name: value}, name, param) if is_of_param else value
        if own:
            states[number] = own
    return {**state, "model": tensors, "sampler": {**state["sampler"], "state": states}}


def _is_sharded(value: Any) -> bool:
    return isinstance(value, Tensor) and is_shard(value)


def _parameters(sampler: torch.optim.Optimizer) -> list[Tensor]:
    return [param for group in sampler.param_groups for param in group["params"]]


def _shard_of(param: Any, local: Tensor) -> Tensor:
    mesh, placements, shape = param.device_mesh, param.placements, param.shape
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=shape, stride=param.stride()
    )
