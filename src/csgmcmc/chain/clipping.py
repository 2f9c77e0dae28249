"""Gradient clipping, for each chain by itself."""

from collections.abc import Sequence

import torch
from torch import nn

from csgmcmc.stack import Stack


def clip_gradients(model: nn.Module, params: Sequence[nn.Parameter], bound: float) -> None:
    """Scale the gradients so that their norm, in a stack that of each chain, is at most `bound`."""
    gradients = [param.grad for param in params if param.grad is not None]
    if not isinstance(model, Stack):
        nn.utils.clip_grads_with_norm_(params, bound, nn.utils.get_total_norm(gradients))
        return
    squares = [gradient.reshape(model.chains, -1).square().sum(1) for gradient in gradients]
    norms = torch.stack(squares).sum(0).sqrt()
    shares = (bound / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(shares.view(-1, *[1] * (gradient.ndim - 1)))
