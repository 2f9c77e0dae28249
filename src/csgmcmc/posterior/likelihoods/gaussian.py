"""Regression with Gaussian noise.

p(y | x) = N(y; mean, variance)
"""

import math
from typing import Any

from torch import Tensor

from csgmcmc.arguments import check_number, shown
from csgmcmc.posterior.likelihoods.base import NumberLikelihood, in_shape, one_or_two, per_point


class Gaussian(NumberLikelihood):
    """Regression with Gaussian noise, of one output or of several that are independent.

    Outputs are means, or tuples of mean and variance as for `gaussian_nll_loss`: a model that
    learns its noise returns both, not one tensor of two columns. Targets have the shape of the
    means; those of shape (batch,) also fit means of (batch, 1).

    Args:
        variance: variance of the noise, if the model returns only means.
    """

    name = "gaussian"
    family = "norm"

    def __init__(self, variance: float | Tensor | None = None) -> None:
        if isinstance(variance, Tensor):
            if not (variance.isfinite() & (variance > 0)).all():
                raise ValueError(f"variance must be above 0 and finite, got {shown(variance)}")
        elif variance is not None:
            variance = check_number("variance", variance, above=0)
        self.variance = variance

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        mean, variance = self.mean_and_variance(outputs)
        squares = (in_shape(targets, mean.shape[1:]) - mean).square() / variance
        return per_point(-0.5 * (squares + variance.log() + math.log(2 * math.pi)))

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        mean, variance = self.mean_and_variance(outputs)
        return {"loc": mean, "scale": variance.sqrt()}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        return one_or_two(outputs, self.variance, "variance")
