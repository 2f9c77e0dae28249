"""The parts of `csgmcmc demo`: 25 Gaussians, and four methods on handwritten digits."""

from csgmcmc.demo.data import Digits, digits, letters
from csgmcmc.demo.digits import DigitsDemo
from csgmcmc.demo.digits_report import show_digits

__all__ = ["Digits", "DigitsDemo", "digits", "letters", "show_digits"]
