"""Densities with known moments, to test samplers on."""

from csgmcmc.targets.base import Target
from csgmcmc.targets.density import Density
from csgmcmc.targets.gaussian import GaussianTarget
from csgmcmc.targets.logistic import LogisticRegression
from csgmcmc.targets.mixture import Mixture, Mixture25

__all__ = [
    "Density",
    "GaussianTarget",
    "LogisticRegression",
    "Mixture",
    "Mixture25",
    "Target",
]
