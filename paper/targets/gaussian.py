"""A Gaussian of any covariance."""

import torch
from torch import Tensor

from paper.targets.base import Target


class GaussianTarget(Target):
    """N(mean, covariance); `mean` and `covariance` are its exact moments."""

    def __init__(self, mean: Tensor, covariance: Tensor) -> None:
        if covariance.shape != (len(mean), len(mean)):
            raise ValueError(
                "mean must have shape (d,) and covariance (d, d), got "
                f"{tuple(mean.shape)} and {tuple(covariance.shape)}"
            )
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if failed or not torch.allclose(covariance, covariance.T):
            raise ValueError("covariance must be symmetric positive definite")
        self.dimension = len(mean)
        self.mean = mean
        self.covariance = covariance
        self.precision = torch.cholesky_inverse(factor)
        self._factor = factor

    def potential(self, points: Tensor) -> Tensor:
        return ((points - self.mean) * self.gradient(points)).sum(-1) / 2

    def gradient(self, points: Tensor) -> Tensor:
        return (points - self.mean) @ self.precision

    def sample(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Exact, independent draws, of shape (count, dimension)."""
        shape = (count, self.dimension)
        noise = torch.randn(shape, generator=generator, dtype=self.mean.dtype).to(self.mean)
        return self.mean + noise @ self._factor.T
