"""The loop of a run: the step, the chain, checkpoints, batches, warnings and display."""

from csgmcmc.loop.chain import Chain, StepInfo
from csgmcmc.loop.log import read_scalars
from csgmcmc.loop.stepper import Stepper

__all__ = ["Chain", "StepInfo", "Stepper", "read_scalars"]
