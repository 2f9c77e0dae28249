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
    """What an update consists of, besides parameters, gradients and lr."""

    noise_std: float
    momentum: float = 0.0
    velocities: Sequence[Tensor] = ()  # one for each parameter, or none at all
    scales: Sequence[Tensor] = ()  # the same: scaled coordinates, in which the velocities are


def why_not_fused(params: Sequence[Tensor], *others: Sequence[Tensor]) -> str | None:
    """Why a kernel cannot take all of these tensors, or None if it can.

    `others`, such as gradients, are empty or have one tensor for each parameter.
    """
    device = params[0].device if params else torch.device("cpu")
    if load_kernels(device) is None:
        needed = {"cpu": "numba", "cuda": "triton"}.get(device.type)
        has_none = f"a parameter is on {device}, which has no kernels"
        return f"{needed} is not installed or does not work" if needed else has_none
    for tensor in (tensor for tensors in (params, *others) for tensor in tensors):
        if tensor.device != device:
            return f"parameters or their states are on {device} and {tensor.device}"
        if tensor.dtype != torch.float32:
            return f"a parameter is {tensor.dtype}, not float32"
        # A lazily negated tensor has the other sign in memory, and a lazy zero has no memory.
        lazy = tensor.is_neg() or (tensor.data_ptr() == 0 and tensor.numel() > 0)
        if lazy or not tensor.is_contiguous():
            return "a parameter is not contiguous in memory"
    for tensors in others:  # else the kernel would read past their ends
        if any(one.shape != two.shape for one, two in zip(params, tensors, strict=False)):
            return "a parameter and its gradient or state have different shapes"
    return None


def pays(terms: FusedTerms, params: Sequence[Tensor]) -> bool:
    """Whether the kernel is faster: always, except for large updates without noise on the CPU.

    Those are bound by memory, and torch's own operations run them on several threads.
    """
    if terms.noise_std > 0 or not params[0].is_cpu:
        return True
    return all(param.numel() <= MAX_ONE_THREAD for param in params)


def fused_update(
    noise: Noise,
    step: int,
    parameter_ids: Sequence[int],
    params: Sequence[Tensor],
    values: Sequence[Tensor],
    gradients: Sequence[Tensor],
    terms: FusedTerms,
    *,
    lr: float,
    weight_decay: float,
) -> None:
    """Move `values`, the local tensors of `params`, in place."""
    spans = list(map(spans_of, params))
    for own, value in zip(spans, values, strict=True):
        if own.total != value.numel():
            raise RuntimeError(f"the positions of {value.numel()} numbers of a shard are unknown")
    device = values[0].device
    refuse_capture(device, step)
    kernels = load_kernels(device)
    if kernels is None:
        raise RuntimeError(f"there are no kernels for {device}")
    numbers = Coefficients(lr, terms.momentum, terms.noise_std, weight_decay)
    columns = (values, gradients, terms.velocities, terms.scales)
    kernels.move_all(noise.key(step), parameter_ids, spans, columns, numbers)
    # So that autograd notices a backward pass through weights that have been moved since.
    increment_version([*values, *terms.velocities])
