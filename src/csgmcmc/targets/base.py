"""Base of all targets: densities to test samplers on, batched over chains."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import check_kind, shown
from csgmcmc.devices import has_numbers


def check_tensor(name: str, value: Any, dimensions: int | None) -> Tensor:
    """A tensor of finite real numbers with so many dimensions, or a `ValueError`."""
    check_kind(name, value, Tensor, "a tensor")
    if value.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise ValueError(f"{name} must be a tensor of float32 or float64, got {value.dtype}")
    if not has_numbers(value):
        raise ValueError(f"{name} must be a dense tensor with data, got {shown(value)}")
    if dimensions not in (None, value.ndim) or not value.numel():
        wanted = "some" if dimensions is None else dimensions
        raise ValueError(
            f"{name} must have {wanted} dimensions and not be empty, got shape {tuple(value.shape)}"
        )
    if not value.isfinite().all():
        raise ValueError(f"{name} must be finite, got {shown(value)}")
    return value


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
