"""Mixtures of Gaussians: many modes of known position and mass."""

import torch
from torch import Tensor

from paper.targets.base import Target


class Mixture(Target):
    """Sum of weights[i] * N(means[i], variance * I), with its exact `mean` and `covariance`.

    Args:
        means: centres of the modes, of shape (modes, dimension).
        variance: variance of every mode in every direction.
        weights: masses of the modes, scaled to sum to 1; equal by default.
    """

    def __init__(self, means: Tensor, variance: float, weights: Tensor | None = None) -> None:
        if weights is None:
            weights = means.new_ones(len(means))
        if weights.shape != (len(means),) or not (weights > 0).all():
            raise ValueError(f"weights must be {len(means)} positive numbers")
        self.dimension = means.shape[1]
        self.means = means
        self.variance = variance
        self.weights = weights / weights.sum()
        self._log_weights = self.weights.log()

    @property
    def std(self) -> float:
        """Standard deviation of a mode in every direction."""
        return self.variance**0.5

    @property
    def mean(self) -> Tensor:
        """Mean of the whole mixture."""
        return self.weights @ self.means

    @property
    def covariance(self) -> Tensor:
        """Covariance of the whole mixture: that of the means, and that within a mode."""
        offsets = self.means - self.mean
        between = offsets.T @ (self.weights[:, None] * offsets)
        return between + self.variance * torch.eye(self.dimension).to(self.means)

    def potential(self, points: Tensor) -> Tensor:
        return -self._log_terms(points).logsumexp(-1)

    def gradient(self, points: Tensor) -> Tensor:
        return self._gradient(points, self._log_terms(points))

    def potential_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        terms = self._log_terms(points)
        return -terms.logsumexp(-1), self._gradient(points, terms)

    def _gradient(self, points: Tensor, log_terms: Tensor) -> Tensor:
        return (points - log_terms.softmax(-1) @ self.means) / self.variance

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Exact, independent draws, of shape (count, dimension)."""
        weights = self.weights.cpu()  # as the generator is
        modes = torch.multinomial(weights, count, replacement=True, generator=generator)
        shape = (count, self.dimension)
        noise = torch.randn(shape, generator=generator, dtype=self.means.dtype).to(self.means)
        return self.means[modes] + self.std * noise

    def _log_terms(self, points: Tensor) -> Tensor:
        """Log of each mode's part of the density, up to a constant, of shape (..., modes)."""
        # Expanding |x - m|^2 would lose precision far from 0.
        squares = (points[..., None, :] - self.means).square().sum(-1)
        return self._log_weights - squares / (2 * self.variance)


class Mixture25(Mixture):
    """The paper's target: 25 equal modes on the grid {-4, -2, 0, 2, 4}^2, of variance 0.03."""

    def __init__(
        self, dtype: torch.dtype = torch.float32, device: torch.device | None = None
    ) -> None:
        grid = torch.tensor([-4.0, -2.0, 0.0, 2.0, 4.0], dtype=dtype, device=device)
        super().__init__(torch.cartesian_prod(grid, grid), variance=0.03)
