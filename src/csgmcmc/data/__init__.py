"""Data of the experiments, as tensors."""

from csgmcmc.data.digits import Digits, digits
from csgmcmc.data.letters import letters
from csgmcmc.data.mnist import Mnist, mnist, not_mnist
from csgmcmc.data.uci import TWO_CLASS_NAMES, two_classes, with_intercept

__all__ = [
    "TWO_CLASS_NAMES",
    "Digits",
    "Mnist",
    "digits",
    "letters",
    "mnist",
    "not_mnist",
    "two_classes",
    "with_intercept",
]
