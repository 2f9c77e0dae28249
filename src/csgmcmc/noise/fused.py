"""Noise and update in one pass over the weights, which torch.optim calls fused.

The kernels of a device, those of `backends`, take contiguous float32 parameters; on a GPU, those of
a group in one launch. The result is that of the plain update to rounding, with the same noise to
the bit. As in the noise itself, no fused multiply-add is used: from the same gradients, all kernels
compute the same bits on every machine.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from csgmcmc.noise.backends import Coefficients, load_kernels, refuse_capture
from csgmcmc.noise.positions import spans_of
from csgmcmc.noise.source import Noise

MAX_ONE_THREAD = 1 << 15
"""The largest tensor that torch updates on one thread, as the kernel does."""


class FusedTerms(NamedTuple):
    """What an update consists of, besides parameters, gradients and options."""

    noise_std: float
    velocities: Sequence[Tensor] = ()  # one for each parameter, or none at all
    scales: Sequence[Tensor] = ()  # the same: scaled coordinates, in which the velocities are


def can_fuse(params: Sequence[Tensor], *others: Sequence[Tensor]) -> bool:
    """Whether the kernels of a device take all of these tensors.

    `others`, such as gradients, are empty or have one tensor for each parameter.
    """
    device = params[0].device if params else torch.device("cpu")
    if load_kernels(device) is None:
        return False
    for tensors in (params, *others):
        for param, tensor in zip(params, tensors, strict=False):
            # A lazily negated tensor has the other sign in memory, and a lazy zero has no memory.
            lazy = tensor.is_neg() or (tensor.data_ptr() == 0 and tensor.numel() > 0)
            if lazy or tensor.dtype != torch.float32 or not tensor.is_contiguous():
                return False
            if tensor.device != device or tensor.shape != param.shape:  # a read past the end
                return False
    return True


def pays(noise_std: float, params: Sequence[Tensor]) -> bool:
    """Whether the kernel is faster: always, except for large updates without noise on the CPU.

    Those are bound by memory, and torch's own operations run them on several threads.
    """
    if noise_std > 0 or not params[0].is_cpu:
        return True
    return all(param.numel() <= MAX_ONE_THREAD for param in params)


def fused_update(
    noise: Noise,
    step: int,
    parameter_ids: Sequence[int],
    params: Sequence[Tensor],
    columns: Sequence[Sequence[Tensor]],
    numbers: Coefficients,
) -> None:
    """Move `params` in place; `columns`, their local tensors first, are those of `move_all`."""
    values, _, velocities, _ = columns
    spans = list(map(spans_of, params))
    for own, value in zip(spans, values, strict=True):
        if own.total != value.numel():
            raise RuntimeError(f"the positions of {value.numel()} numbers of a shard are unknown")
    device = values[0].device
    refuse_capture(device, step)
    load_kernels(device).move_all(noise.key(step), parameter_ids, spans, columns, numbers)
    # So that autograd notices a backward pass through weights that have been moved since.
    increment_version([*values, *velocities])
