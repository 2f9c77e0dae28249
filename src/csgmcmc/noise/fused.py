"""Noise and update in one pass over the weights, which torch.optim calls fused.

The kernels of a device are chosen by `source.load_kernels`; today there are those of the CPU, for
contiguous float32 parameters. The result is that of the plain update to rounding, with the same
noise to the bit. As in the noise itself, no fused multiply-add is used: a run has the same bits on
every machine.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from csgmcmc.noise.positions import spans_of
from csgmcmc.noise.source import Noise, load_kernels

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
    for tensor in (tensor for tensors in (params, *others) for tensor in tensors):
        if not tensor.is_cpu:
            return f"a parameter is on {tensor.device}, not in the CPU's memory"
        if tensor.dtype != torch.float32:
            return f"a parameter is {tensor.dtype}, not float32"
        # A lazily negated tensor has the other sign in memory, and a lazy zero has no memory.
        lazy = tensor.is_neg() or (tensor.data_ptr() == 0 and tensor.numel() > 0)
        if lazy or not tensor.is_contiguous():
            return "a parameter is not contiguous in memory"
    for tensors in others:  # else the kernel would read past their ends
        if any(one.shape != two.shape for one, two in zip(params, tensors, strict=False)):
            return "a parameter and its gradient or state have different shapes"
    return "numba is not installed" if load_kernels("cpu") is None else None


def pays(terms: FusedTerms, params: Sequence[Tensor]) -> bool:
    """Whether the kernel is faster: always, except for large updates without noise.

    Those are bound by memory, and torch's own operations run them on several threads.
    """
    return terms.noise_std > 0 or all(param.numel() <= MAX_ONE_THREAD for param in params)


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
    seed, chain = noise.signed_seed(), noise.chain_id
    velocities, scales = (
        [tensor.data_ptr() for tensor in tensors] or [0] * len(values)
        for tensors in (terms.velocities, terms.scales)
    )
    # Floats, because a kernel would be compiled anew for a whole number.
    numbers = (float(lr), float(terms.momentum), terms.noise_std, float(weight_decay))
    move = load_kernels("cpu").move
    for parameter_id, param, value, gradient, velocity, scale in zip(
        parameter_ids, params, values, gradients, velocities, scales, strict=True
    ):
        spans = spans_of(param)
        if len(spans.first) * spans.length != value.numel():
            raise RuntimeError(f"the positions of {value.numel()} numbers of a shard are unknown")
        if value.numel():
            tensors = (value.data_ptr(), gradient.data_ptr(), velocity, scale)
            move(*tensors, *spans, seed, chain, parameter_id, step, *numbers)
    # So that autograd notices a backward pass through weights that have been moved since.
    increment_version([*values, *terms.velocities])
