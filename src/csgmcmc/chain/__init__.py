"""A loop with batches, checkpoints and a display around the stepper; stacked chains."""

from csgmcmc.chain.events import StepInfo
from csgmcmc.chain.loop import Chain
from csgmcmc.scalars import read_scalars

__all__ = ["Chain", "StepInfo", "read_scalars"]
