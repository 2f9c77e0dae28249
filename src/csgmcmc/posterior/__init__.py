"""Predictions averaged over draws: likelihoods, weights of the draws, batch-norm statistics."""

from typing import TYPE_CHECKING

from csgmcmc.lazy import lazy_attributes
from csgmcmc.posterior.batchnorm import refresh_batchnorm, refresh_draws
from csgmcmc.posterior.likelihoods import Bernoulli, Categorical, Likelihood
from csgmcmc.posterior.numbers import (
    Gaussian,
    NegativeBinomial,
    NumberLikelihood,
    Poisson,
    StudentT,
)
from csgmcmc.posterior.ordinal import Ordinal
from csgmcmc.posterior.paths import WeightPath, weight_matrix, weight_path
from csgmcmc.posterior.posterior import Posterior
from csgmcmc.posterior.predictive import (
    ClassPredictive,
    GaussianPredictive,
    NumberPredictive,
    Predictive,
)

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
    "NegativeBinomial",
    "NumberLikelihood",
    "NumberPredictive",
    "Ordinal",
    "Poisson",
    "Posterior",
    "Predictive",
    "StudentT",
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
