"""The parts of `csgmcmc demo`: 25 Gaussians, regression, two moons, and handwritten digits."""

from csgmcmc.demo.data import Digits, load_digits, load_letters
from csgmcmc.demo.digits import DigitsDemo
from csgmcmc.demo.digits_report import show_digits
from csgmcmc.demo.mixture import MixtureDemo, show_mixture
from csgmcmc.demo.moons import MoonsDemo, show_moons
from csgmcmc.demo.regression import RegressionDemo, show_regression

__all__ = [
    "Digits",
    "DigitsDemo",
    "MixtureDemo",
    "MoonsDemo",
    "RegressionDemo",
    "load_digits",
    "load_letters",
    "show_digits",
    "show_mixture",
    "show_moons",
    "show_regression",
]
