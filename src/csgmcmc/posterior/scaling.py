"""Weights of draws and the temperature of their logits, fitted together on held-out data.

    max over w, T of  sum_i log sum_m w_m p_m(y_i; T),    w on the simplex

with p_m(.; T) the average prediction of a group of draws whose logits are divided by T. For each T
the weights are those of stacking, a convex problem; T is a minimum over one number.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import minimize_scalar

from csgmcmc.posterior.passes import Outputs, over_draws
from csgmcmc.posterior.weights import Weights, stacking_weights

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior

MAX_LOG_TEMPERATURE = 3.0


class Fit(NamedTuple):
    """A weight for each draw, a temperature, and what they score.

    `temperature` is None where the likelihood has no logits. `scores` are log-likelihoods of the
    held-out points under the weighted average.
    """

    weights: Weights
    temperature: float | None
    scores: NDArray[np.float64]

    @property
    def nll(self) -> float:
        """Mean over the held-out points."""
        return -float(self.scores.mean())


class HeldOut:
    """The outputs of every draw for held-out data, in memory, to be scored at any temperature."""

    def __init__(self, posterior: "Posterior", loader: Iterable[Any]) -> None:
        self.likelihood = posterior.likelihood
        self._batches = list(over_draws(posterior, loader, "scoring", Outputs))

    def fit(self, groups: NDArray[np.int64]) -> Fit:
        """The best fit of groups of draws, numbered from 0; -1 is in none and has weight 0."""

        def nll(log_temperature: float) -> float:
            return self._fit(groups, math.exp(log_temperature)).nll

        if self.likelihood.temperature is None:
            return self._fit(groups, None)
        bounds = -MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE
        found: Any = minimize_scalar(nll, bounds=bounds, method="bounded")
        return self._fit(groups, math.exp(found.x))

    def _fit(self, groups: NDArray[np.int64], temperature: float | None) -> Fit:
        likelihood = self.likelihood
        if temperature is not None:
            likelihood = likelihood.scaled(temperature)
        scores = torch.cat([batch.scores(likelihood) for batch in self._batches], dim=1)
        scores = scores.cpu().numpy()
        weights = stacking_weights(scores, groups)
        return Fit(weights, temperature, special.logsumexp(scores, axis=0, b=weights[:, None]))
