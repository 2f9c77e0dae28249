"""Counts: Poisson, and negative binomial for counts with a larger variance.

Poisson             variance = mean
negative binomial   variance = mean + dispersion * mean^2
"""

import math
from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import check_number
from csgmcmc.posterior.likelihoods.base import (
    NumberLikelihood,
    at_least_float32,
    in_shape,
    one_or_two,
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


class NegativeBinomial(NumberLikelihood):
    """Counts whose variance, mean + dispersion * mean^2, exceeds their mean.

    Outputs are logarithms of the mean, or pairs (tuples) of that and the logarithm of the
    dispersion. At dispersion 0 it would be `Poisson`.

    Args:
        dispersion: if the model returns only means.
    """

    name = "negative-binomial"
    family = "nbinom"

    def __init__(self, dispersion: float | None = None) -> None:
        if dispersion is not None:
            dispersion = check_number("dispersion", dispersion, above=0)
        self.dispersion = dispersion

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        log_mean, log_dispersion = self._logarithms(outputs)
        found = torch.distributions.NegativeBinomial(
            total_count=(-log_dispersion).exp(), logits=log_mean + log_dispersion
        )
        return per_point(found.log_prob(_counts(targets, log_mean)))

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        log_mean, log_dispersion = self._logarithms(outputs)
        odds = log_mean + log_dispersion
        return {"n": (-log_dispersion).exp(), "p": torch.sigmoid(-odds)}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        log_mean, log_dispersion = self._logarithms(outputs)
        mean = log_mean.exp()
        return mean, mean + log_dispersion.exp() * mean.square()

    def _logarithms(self, outputs: Any) -> tuple[Tensor, Tensor]:
        known = None if self.dispersion is None else math.log(self.dispersion)
        return one_or_two(outputs, known, "dispersion")


def _counts(targets: Tensor, outputs: Tensor) -> Tensor:
    """Targets in the shape and dtype of the outputs; raises if they are not counts."""
    counts = in_shape(targets, outputs.shape[1:]).to(outputs)
    wrong = (counts < 0) | (counts != counts.floor())
    if wrong.any():
        raise ValueError(f"targets must be counts, got {counts[wrong][0].item():g}")
    return counts
