"""Base of all targets: densities to test samplers on, batched over chains."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Target(ABC):
    """A density over points with `dimension` coordinates, given by U = -log density + constant.

    Points come as tensors of shape (..., dimension); the leading dimensions are chains.
    """

    dimension: int

    @abstractmethod
    def potential(self, points: Tensor) -> Tensor:
        """U at each point, of shape (...)."""

    def gradient(self, points: Tensor) -> Tensor:
        """The gradient of U at each point, in the shape of `points`.

        By automatic differentiation; targets override it with a faster closed form.
        """
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            total = self.potential(points).sum()
        return torch.autograd.grad(total, points)[0]

    def potential_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Both at once; targets override it where the two share computation."""
        return self.potential(points), self.gradient(points)
