"""The parts of `csgmcmc demo`: 25 Gaussians, and four methods on handwritten digits."""

from csgmcmc.demo.data import Digits, load_digits, load_letters
from csgmcmc.demo.digits import DigitsDemo
from csgmcmc.demo.digits_report import show_digits
from csgmcmc.demo.mixture import MixtureDemo, show_mixture

__all__ = [
    "Digits",
    "DigitsDemo",
    "MixtureDemo",
    "load_digits",
    "load_letters",
    "show_digits",
    "show_mixture",
]
