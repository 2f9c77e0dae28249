"""A Gaussian of any covariance."""

import torch
from torch import Tensor

from csgmcmc.arguments import shown
from csgmcmc.targets.base import Target, check_tensor


class GaussianTarget(Target):
    """N(mean, covariance); `mean` and `covariance` are its exact moments."""

    def __init__(self, mean: Tensor, covariance: Tensor) -> None:
        check_tensor("mean", mean, 1)
        check_tensor("covariance", covariance, 2)
        if mean.dtype != covariance.dtype or mean.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                "mean and covariance must be of one dtype, float32 or float64, got "
                f"{mean.dtype} and {covariance.dtype}"
            )
        if covariance.shape != (len(mean), len(mean)):
            raise ValueError(
                "mean must have shape (d,) and covariance (d, d), got "
                f"{tuple(mean.shape)} and {tuple(covariance.shape)}"
            )
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if failed or not torch.allclose(covariance, covariance.T):
            raise ValueError(
                f"covariance must be symmetric positive definite, got {shown(covariance)}"
            )
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
        noise = torch.randn(shape, generator=generator, dtype=self.mean.dtype)
        return self.mean + noise @ self._factor.T
