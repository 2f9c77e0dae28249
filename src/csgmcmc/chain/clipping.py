"""Gradient clipping, for each chain separately."""

from collections.abc import Sequence

from torch import nn

from csgmcmc.stacked import Stack, gradient_norms


def clip_gradients(model: nn.Module, params: Sequence[nn.Parameter], bound: float) -> None:
    """Scale the gradients so that their norm, in a stack that of each chain, is at most `bound`."""
    gradients = [param.grad for param in params if param.grad is not None]
    norms = gradient_norms(model, gradients)
    if not isinstance(model, Stack):
        nn.utils.clip_grads_with_norm_(params, bound, norms)
        return
    shares = (bound / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))
