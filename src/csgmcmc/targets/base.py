"""What every target is: a density whose answers are known, batched over chains."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Target(ABC):
    """A density over points of `dimension` numbers, known by its potential U = -log density + c.

    Points come as tensors of shape (..., dimension); the leading dimensions are chains.
    """

    dimension: int

    @abstractmethod
    def potential(self, points: Tensor) -> Tensor:
        """U at each point, of shape (...)."""

    def gradient(self, points: Tensor) -> Tensor:
        """The gradient of U at each point, in the shape of `points`.

        By automatic differentiation; targets override it with a closed form, which is faster.
        """
        with torch.enable_grad():
            points = points.detach().requires_grad_()
            total = self.potential(points).sum()
        return torch.autograd.grad(total, points)[0]

    def potential_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Both at once; targets override it where they share work."""
        return self.potential(points), self.gradient(points)
