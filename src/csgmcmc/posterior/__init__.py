"""Predictions averaged over draws, likelihoods, and weights of the draws."""

from typing import TYPE_CHECKING

from csgmcmc.discovery import lazy_attributes
from csgmcmc.posterior.likelihoods.base import Likelihood
from csgmcmc.posterior.likelihoods.classes import Bernoulli, Categorical
from csgmcmc.posterior.likelihoods.counts import NegativeBinomial, Poisson
from csgmcmc.posterior.likelihoods.gaussian import Gaussian
from csgmcmc.posterior.likelihoods.student_t import StudentT
from csgmcmc.posterior.posterior import Posterior
from csgmcmc.posterior.predictive import ClassPredictive, NumberPredictive, Predictive

if TYPE_CHECKING:
    from csgmcmc.posterior.weights import harmonic_weights, stacking_weights

__all__ = [
    "Bernoulli",
    "Categorical",
    "ClassPredictive",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "NumberPredictive",
    "Poisson",
    "Posterior",
    "Predictive",
    "StudentT",
    "harmonic_weights",
    "stacking_weights",
]

__getattr__ = lazy_attributes(__name__, weights=("harmonic_weights", "stacking_weights"))
