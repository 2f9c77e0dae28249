"""A density with two wells that satisfies the paper's assumptions, and how far draws are from it.

A polynomial like (theta^2 - 1)^2 has no Lipschitz gradient, and large steps on it explode. The
mixture of two narrow Gaussians has both: two wells of unequal mass, and tails that are Gaussian.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.targets import Target

GRID = 200_001  # points of the quadrature: an error far below that of any number of draws
REACH = 10.0  # standard deviations beyond the wells

Array = NDArray[np.float64]


class DoubleWell(Target):
    """The mixture of N(-1, s^2), with mass `light`, and N(1, s^2)."""

    dimension = 1

    def __init__(self, scale: float, light: float) -> None:
        self.scale = scale
        self.tilt = math.log((1 - light) / light) / 2

    def potential(self, points: Tensor) -> Tensor:
        bend = points / self.scale**2 + self.tilt
        wells = torch.logaddexp(bend, -bend)
        return (points**2 / (2 * self.scale**2) - wells).squeeze(-1)

    def gradient(self, points: Tensor) -> Tensor:
        return (points - torch.tanh(points / self.scale**2 + self.tilt)) / self.scale**2

    def barrier(self) -> float:
        """Height of U between the wells above the bottom of the lighter one."""
        points, heights = self._grid()
        top = int(np.argmax(np.where(np.abs(points) < 1, heights, -np.inf)))
        return float(heights[top] - heights[:top].min())

    def quantiles(self, count: int) -> Array:
        """The quantiles at (i + 1/2) / count, by quadrature of exp(-U)."""
        points, heights = self._grid()
        density = np.exp(heights.min() - heights)
        mass = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
        return np.interp((np.arange(count) + 0.5) / count, mass / mass[-1], points)

    def _grid(self) -> tuple[Array, Array]:
        edge = 1 + REACH * self.scale
        points = np.linspace(-edge, edge, GRID)
        return points, self.potential(torch.as_tensor(points)[:, None]).numpy()


def wasserstein(draws: Array, quantiles: Array) -> tuple[float, float]:
    """W1 and W2 of draws in one dimension from the distribution with these quantiles."""
    apart = np.abs(np.sort(draws) - quantiles)
    return float(apart.mean()), float(np.sqrt((apart**2).mean()))
