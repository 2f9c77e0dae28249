"""The one step: everything around a sampler's step but batches and gradients."""

from csgmcmc.stepper.inputs import LoopWords
from csgmcmc.stepper.stepper import Stepper

__all__ = ["LoopWords", "Stepper"]
