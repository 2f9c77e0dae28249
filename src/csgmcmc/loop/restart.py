"""Restarts: the weights of a chain become fresh ones, or are mixed with them.

    theta <- rho * theta + sqrt(1 - rho^2) * fresh

This keeps the prior exactly where the initialisation draws from it (for rho above 0 it is "shrink
and perturb": Ash and Adams, "On Warm-Starting Neural Network Training", NeurIPS 2020). Where
initial values are not random, as the scales of a norm, it is rho * theta + (1 - rho) * initial.
Buffers that modules initialise, as the statistics of a batch norm, get their initial values.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

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
        own = chain if isinstance(model, Stack) else ...
        fresh, again = (initial_values(model, sampled, (*key, i), initialise, own) for i in (0, 1))
        for (tensor, new), (_, other) in zip(fresh, again, strict=True):
            value, part = local_shard(tensor)[own], local_slices(tensor)[: new.ndim]
            if isinstance(tensor, nn.Parameter):
                share = torch.where(new == other, 1 - rho, math.sqrt(1 - rho**2))
                value.mul_(rho).add_((share * new)[part].to(value))
            else:
                value.copy_(new[part])


@torch.no_grad()
def initial_values(
    model: nn.Module,
    sampled: Sequence[Tensor],
    key: Sequence[int],
    initialise: Initialise | None,
    own: Any = ...,
) -> list[tuple[Tensor, Tensor]]:
    """The sampled parameters and all buffers, each with its initial values, whole and on the CPU.

    `own` is the number of a stack's chain. A `ValueError` names parameters without initial values.
    """
    inner, ids = model.inner if isinstance(model, Stack) else model, set(map(id, sampled))
    params, buffers = dict(inner.named_parameters()), dict(inner.named_buffers())
    skipped = isinstance(model, Stack)  # the dimension of the chains
    new = {
        name: torch.full(param.shape[skipped:], math.nan, dtype=param.dtype, device="cpu")
        for name, param in params.items()
    }
    new |= {name: buffer[own].detach().cpu().clone() for name, buffer in buffers.items()}
    resets = [*_resets(inner, ids), *([] if initialise is None else [partial(initialise, inner)])]
    with seeded(int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])):
        # Frozen weights and shards stay as they are: the modules see the new tensors meanwhile.
        given = {f"inner.{name}": value for name, value in new.items()}
        functional_call(_Initialised(inner, resets), given, ())
    wanted = {name: param for name, param in params.items() if id(param) in ids}
    missing = [name for name in wanted if new[name].isnan().any()]
    if missing:
        raise ValueError(
            "a restart needs initial weights, and no reset_parameters of a module makes those of "
            f"{', '.join(missing)}: give initialise=, a function that does, or give the module "
            "that has them such a method"
        )
    return [(tensor, new[name]) for name, tensor in {**wanted, **buffers}.items()]


class _Initialised(nn.Module):
    def __init__(self, inner: nn.Module, resets: Sequence[Callable[[], Any]]) -> None:
        super().__init__()
        self.inner, self.resets = inner, resets

    def forward(self) -> None:
        for reset in self.resets:
            reset()


def _resets(module: nn.Module, sampled: set[int]) -> Iterator[Callable[[], Any]]:
    """The methods of modules with sampled weights, or with none at all; of inner modules first.

    Frozen modules are left out, with all that is inside of them.
    """
    own = set(map(id, module.parameters()))
    if own and own.isdisjoint(sampled):
        return
    for child in module.children():
        yield from _resets(child, sampled)
    for name in ("reset_parameters", "_reset_parameters"):  # the latter of attention
        if hasattr(module, name):
            yield getattr(module, name)
            return
