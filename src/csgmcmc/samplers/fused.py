"""Noise and update in one pass over the weights, which torch.optim calls fused.

It serves contiguous float32 parameters on the CPU. The result is that of the plain update to
rounding, with the same noise to the bit. As in the noise itself, no fused multiply-add is used: a
run has the same bits on every machine.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from csgmcmc.samplers.noise import Noise, load_kernels
from csgmcmc.samplers.positions import runs_of

ONE_THREAD = 1 << 15
"""The largest tensor that torch updates on one thread, as the kernel does."""


class FusedTerms(NamedTuple):
    """What an update consists of, besides parameters, gradients and lr.

    Attributes:
        noise_std: standard deviation of the noise.
        momentum: factor of the velocities.
        velocities: one for each parameter, or none at all.
    """

    noise_std: float
    momentum: float = 0.0
    velocities: Sequence[Tensor] = ()


def why_not_fused(params: Iterable[Tensor]) -> str | None:
    """Why the kernel cannot serve all of these tensors, or None if it can."""
    for param in params:
        if not param.is_cpu:
            return f"a parameter is on {param.device}, not in the CPU's memory"
        if param.dtype != torch.float32:
            return f"a parameter is {param.dtype}, not float32"
        # A lazily negated tensor has the other sign in memory, and a lazy zero has no memory.
        lazy = param.is_neg() or (param.data_ptr() == 0 and param.numel() > 0)
        if lazy or not param.is_contiguous():
            return "a parameter is not contiguous in memory"
    return "numba is not installed" if load_kernels() is None else None


def shapes_agree(values: Sequence[Tensor], *others: Sequence[Tensor]) -> bool:
    """Whether the others have the shapes of the values: the kernel would read past their ends."""
    return all(
        one.shape == other.shape
        for tensors in others
        for one, other in zip(values, tensors, strict=False)  # there may be no velocities
    )


def pays(terms: FusedTerms, params: Iterable[Tensor]) -> bool:
    """Whether the kernel is the faster way: not for large updates without noise.

    Those are bound by memory, and torch's own operations run them on several threads.
    """
    return terms.noise_std > 0 or all(param.numel() <= ONE_THREAD for param in params)


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
    addresses = [velocity.data_ptr() for velocity in terms.velocities] or [0] * len(values)
    move = load_kernels().move
    for parameter_id, param, value, gradient, velocity in zip(
        parameter_ids, params, values, gradients, addresses, strict=True
    ):
        runs = runs_of(param)
        if len(runs.first) * runs.length != value.numel():
            raise RuntimeError(f"the positions of {value.numel()} numbers of a shard are unknown")
        if value.numel():
            move(
                value.data_ptr(),
                gradient.data_ptr(),
                velocity,
                *runs,
                seed,
                chain,
                parameter_id,
                step,
                # A whole number would be compiled for anew.
                float(lr),
                float(terms.momentum),
                terms.noise_std,
                float(weight_decay),
            )
    # So that autograd notices a backward pass through weights that have been moved since.
    increment_version([*values, *terms.velocities])
