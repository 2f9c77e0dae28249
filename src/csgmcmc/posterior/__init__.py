"""Predictions averaged over draws: likelihoods, weights of the draws, batch-norm statistics."""

from typing import TYPE_CHECKING

from csgmcmc.lazy import lazy_attributes
from csgmcmc.posterior.batchnorm import refresh_batchnorm, refresh_draws
from csgmcmc.posterior.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from csgmcmc.posterior.paths import WeightPath, weight_matrix, weight_path
from csgmcmc.posterior.posterior import Posterior
from csgmcmc.posterior.predictive import ClassPredictive, GaussianPredictive, Predictive

if TYPE_CHECKING:
    from csgmcmc.posterior.regions import find_regions
    from csgmcmc.posterior.weights import harmonic_weights, mass_weights, stacking_weights

__all__ = [
    "Bernoulli",
    "Categorical",
    "ClassPredictive",
    "Gaussian",
    "GaussianPredictive",
    "Likelihood",
    "Posterior",
    "Predictive",
    "WeightPath",
    "find_regions",
    "harmonic_weights",
    "mass_weights",
    "refresh_batchnorm",
    "refresh_draws",
    "stacking_weights",
    "weight_matrix",
    "weight_path",
]

__getattr__ = lazy_attributes(
    __name__,
    regions=("find_regions",),
    weights=("harmonic_weights", "mass_weights", "stacking_weights"),
)
