"""Restarts: the weights of a chain become fresh ones, or are mixed with them.

    theta <- rho * theta + sqrt(1 - rho^2) * fresh

This keeps the prior exactly where the initialisation draws from it (for rho above 0 it is "shrink
and perturb": Ash and Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020). Where
initial values are not random, as the scales of a norm, it is rho * theta + (1 - rho) * initial.
Buffers that modules initialise, as the statistics of a batch norm, get their initial values.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csgmcmc.randomness import seeded
from csgmcmc.shards import local_shard, local_slices
from csgmcmc.stacked import Stack

Initialise = Callable[[nn.Module], object]


@torch.no_grad()
def restart_weights(
    model: nn.Module,
    sampled: Sequence[Tensor],
    rho: float,
    keys: Sequence[Sequence[int]],
    initialise: Initialise | None = None,
) -> None:
    """Restart the sampled weights; what is random in the i-th chain depends on `keys[i]` alone."""
    for chain, key in enumerate(keys):
        fresh, again = (
            initial_tensors(model, sampled, (*key, i), initialise, chain) for i in range(2)
        )
        for tensor, new in fresh.items():
            value = local_shard(tensor)[chain if isinstance(model, Stack) else ...]
            part = local_slices(tensor)[: new.ndim]
            if isinstance(tensor, nn.Parameter):
                share = torch.where(new == again[tensor], 1 - rho, math.sqrt(1 - rho**2))
                value.mul_(rho).add_((share * new)[part].to(value))
            else:
                value.copy_(new[part])


@torch.no_grad()
def initial_tensors(
    model: nn.Module,
    sampled: Sequence[Tensor],
    key: Sequence[int],
    initialise: Initialise | None,
    chain: int = 0,
) -> dict[Tensor, Tensor]:
    """Initial values of the sampled parameters and of all buffers, whole and on the CPU.

    Modules are given other tensors for that moment, of one chain of a stack. A `ValueError` names
    the sampled parameters that none of them initialises.
    """
    own = chain if isinstance(model, Stack) else None
    model = model.inner if isinstance(model, Stack) else model
    names: dict[Tensor, str] = {param: name for name, param in model.named_parameters()}
    ids = set(map(id, sampled))
    resets = list(_resets(model, ids))
    registries: list[dict[str, Any]] = []
    for module in model.modules():
        registries += [module._parameters, module._buffers]  # pyright: ignore[reportArgumentType]
    before = [dict(registry) for registry in registries]
    made: dict[Tensor | None, Tensor | None] = {None: None}  # so that ties are kept
    for tensor in (tensor for registry in before for tensor in registry.values()):
        if tensor not in made and tensor is not None:
            like = tensor if own is None else tensor[own]
            if isinstance(tensor, nn.Parameter):
                blank = torch.full(like.shape, math.nan, dtype=tensor.dtype, device="cpu")
                made[tensor] = nn.Parameter(blank, requires_grad=tensor.requires_grad)
            else:
                made[tensor] = like.detach().cpu().clone()
    fresh: dict[Tensor, Tensor] = {}
    try:
        for registry in registries:
            registry.update({name: made[tensor] for name, tensor in registry.items()})
        with seeded(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])):
            for reset in resets:
                reset()
            if initialise is not None:
                initialise(model)
        for registry, original in zip(registries, before, strict=True):
            for name, tensor in original.items():
                is_wanted = id(tensor) in ids or not isinstance(tensor, nn.Parameter)
                if tensor is not None and is_wanted:
                    fresh.setdefault(tensor, registry[name].detach())
    finally:
        for registry, original in zip(registries, before, strict=True):
            registry.update(original)
    missing = [names[param] for param, new in fresh.items() if param in names and new.isnan().any()]
    if missing:
        raise ValueError(
            "a restart needs initial weights, and no reset_parameters of a module makes those of "
            f"{', '.join(missing)}: give initialise=, a function that does, or give the module "
            "that has them such a method"
        )
    return fresh


def _resets(module: nn.Module, ids: set[int]) -> Iterator[Callable[[], Any]]:
    """How the modules that have sampled weights, or none at all, are initialised; inner ones first.

    Frozen modules are left out, with all that is inside of them.
    """
    own = set(map(id, module.parameters()))
    if own and own.isdisjoint(ids):
        return
    for child in module.children():
        yield from _resets(child, ids)
    for name in ("reset_parameters", "_reset_parameters"):  # the latter of attention
        if hasattr(module, name):
            yield getattr(module, name)
            return
