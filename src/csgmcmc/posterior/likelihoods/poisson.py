"""The Poisson distribution, of counts."""

from typing import Any

import torch
from torch import Tensor

from csgmcmc.posterior.likelihoods.base import (
    NumberLikelihood,
    at_least_float32,
    in_shape,
    per_point,
)


class Poisson(NumberLikelihood):
    """Counts; outputs are logarithms of the rate, as for `poisson_nll_loss`."""

    name = "poisson"
    family = "poisson"

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        log_rate = at_least_float32(outputs)
        counts = _counts(targets, log_rate)
        return per_point(counts * log_rate - log_rate.exp() - torch.lgamma(counts + 1))

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        return {"mu": at_least_float32(outputs).exp()}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        rate = at_least_float32(outputs).exp()
        return rate, rate


def _counts(targets: Tensor, outputs: Tensor) -> Tensor:
    """Targets in the shape and dtype of the outputs; raises if they are not counts."""
    counts = in_shape(targets, outputs.shape[1:]).to(outputs)
    wrong = (counts < 0) | (counts != counts.floor())
    if wrong.any():
        raise ValueError(f"targets must be counts, got {counts[wrong][0].item():g}")
    return counts
