"""Data of the experiments, as tensors."""

from csgmcmc.data.digits import Digits, digits
from csgmcmc.data.letters import letters
from csgmcmc.data.mnist import Mnist, mnist, not_mnist

__all__ = ["Digits", "Mnist", "digits", "letters", "mnist", "not_mnist"]
