"""A target as a module, so that `Chain` can sample it."""

from typing import Any

import torch
from torch import Tensor, nn

from paper.targets.base import Target


class Density(nn.Module):
    """Chains on a target, as the rows of one parameter `points`; `forward` is U summed over them.

    Args:
        target: the density.
        points: where the chains start, of shape (..., dimension).
    """

    def __init__(self, target: Target, points: Tensor) -> None:
        super().__init__()
        if not points.ndim or points.shape[-1] != target.dimension:
            raise ValueError(
                f"points must have shape (..., {target.dimension}), got {tuple(points.shape)}"
            )
        self.target = target
        self.points = nn.Parameter(points.clone())

    def forward(self) -> Tensor:
        return _Potential.apply(self.points, self.target)  # pyright: ignore[reportReturnType]


class _Potential(torch.autograd.Function):
    """The sum of a target's potentials, with the target's own gradient."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, target: Target) -> Tensor:
        potential, gradient = target.potential_and_gradient(points)
        ctx.save_for_backward(gradient)
        return potential.sum()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return upstream[0] * gradient, None
