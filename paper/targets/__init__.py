"""Densities with known moments, to test samplers on."""

from paper.targets.base import Target
from paper.targets.density import Density
from paper.targets.gaussian import GaussianTarget
from paper.targets.logistic import LogisticRegression
from paper.targets.mixture import Mixture, Mixture25

__all__ = [
    "Density",
    "GaussianTarget",
    "LogisticRegression",
    "Mixture",
    "Mixture25",
    "Target",
]
