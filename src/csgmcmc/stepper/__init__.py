"""The one step: everything around a sampler's step but batches and gradients."""

from csgmcmc.stepper.stepper import Stepper
from csgmcmc.stepper.words import LoopWords

__all__ = ["LoopWords", "Stepper"]
