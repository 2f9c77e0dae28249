"""Data of the experiments, as tensors."""

from csgmcmc.data.digits import Digits, digits
from csgmcmc.data.letters import letters

__all__ = ["Digits", "digits", "letters"]
