"""The parts of a run: whether they fit together, and the tensors that they hold."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from csgmcmc.arguments import check_kind, shown
from csgmcmc.devices import NARROW_DTYPES
from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws
from csgmcmc.draws.base import check_state
from csgmcmc.errors import warn
from csgmcmc.schedules import Schedule
from csgmcmc.shards import is_shard, local_shard


def check_parts(
    model: nn.Module, sampler: torch.optim.Optimizer, schedule: Schedule, draws: Draws
) -> None:
    """Raise a `ValueError` if one of these has the wrong type, or they do not fit together."""
    check_kind("model", model, nn.Module, "a torch.nn.Module")
    check_state(model.state_dict())
    check_kind("sampler", sampler, torch.optim.Optimizer, "a sampler or a torch optimizer")
    if any(base.__name__ == "ZeroRedundancyOptimizer" for base in type(sampler).__mro__):
        raise ValueError(
            "sampler is a ZeroRedundancyOptimizer, in which parameters of different processes "
            "would share their noise: shard the model with torch.distributed.fsdp.fully_shard"
        )
    check_kind("schedule", schedule, Schedule, "a csgmcmc schedule, such as Cyclical")
    check_kind("draws", draws, Draws, "a DrawStore or MemoryDraws")
    if not any(param.requires_grad for param in model.parameters()):
        raise ValueError("model has no trainable parameter: nothing to sample")
    known = set(map(id, model.parameters()))
    for param in (param for group in sampler.param_groups for param in group["params"]):
        if id(param) not in known:
            raise ValueError(
                f"sampler holds a parameter of shape {tuple(param.shape)} that is not the "
                "model's: make it with model.parameters(), after stacking, and put parameters "
                "of the loss into the model"
            )


def check_chain_id(given: int | None, of_sampler: int, chains: int, layout: ProcessLayout) -> None:
    """Raise a `ValueError` if the sampler is not that of the first chain of this process."""
    if given not in (None, of_sampler):
        raise ValueError(
            f"chain_id={given}, but the sampler draws the noise of chain {of_sampler}: make it "
            f"with chain_id={given}"
        )
    first = layout.chain_id * chains
    if layout.chains > 1 and of_sampler != first:
        raise ValueError(
            f"the first chain of this process is {first}, but the sampler is of chain "
            f"{of_sampler}: make it with chain_id=layout.chain_id (times the chains of a stack)"
        )


def warn_of_narrow_weights(params: Sequence[Tensor]) -> None:
    """Warn of weights of 16 bits, which round most of the noise away."""
    narrow = {param.dtype for param in params} & set(NARROW_DTYPES)
    if narrow:
        warn(
            f"the sampled weights are {narrow.pop()}, which rounds most of the noise away: keep "
            "them in torch.float32, and use mixed precision (autocast)"
        )


def float_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The floating point buffers that a draw keeps, by name."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    for name, value in model.state_dict().items():
        if name not in parameters and isinstance(value, Tensor) and value.is_floating_point():
            values = local_shard(value.detach())
            yield name, values.float() if values.dtype.itemsize == 1 else values


def all_tensors(model: nn.Module) -> dict[str, Tensor]:
    """All tensors of a model, including buffers that its state_dict leaves out."""
    return {**dict(model.named_buffers()), **model.state_dict()}


def copy_weights(model: nn.Module, saved: Any) -> None:
    """Copy all tensors of a state into `model`; nothing is changed if one does not fit."""
    own = all_tensors(model)
    for name, value in own.items():
        other, shape = saved[name], local_shard(value).shape
        if not isinstance(other, Tensor) or other.shape != shape:  # another would be broadcast
            raise ValueError(
                f"{name} of the model must be a tensor of shape {tuple(shape)}, got {shown(other)}"
            )
    with torch.no_grad():
        for name, value in own.items():
            local_shard(value).copy_(saved[name])


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
