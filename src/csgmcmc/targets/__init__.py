"""Densities whose answers are known, to hold samplers to."""

from csgmcmc.targets.base import Target
from csgmcmc.targets.density import Density
from csgmcmc.targets.gaussian import Gaussian
from csgmcmc.targets.logistic import LogisticRegression
from csgmcmc.targets.mixture import Mixture, Mixture25

__all__ = ["Density", "Gaussian", "LogisticRegression", "Mixture", "Mixture25", "Target"]
