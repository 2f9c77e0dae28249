"""The only loop, and what it needs to stop anywhere and go on exactly."""

from csgmcmc.chain.config import MismatchError
from csgmcmc.chain.distributed import Place, leave, place
from csgmcmc.chain.events import Diverged, Moment
from csgmcmc.chain.loop import Chain
from csgmcmc.chain.scalars import read_scalars
from csgmcmc.chain.stack import Stack, stack

__all__ = [
    "Chain",
    "Diverged",
    "MismatchError",
    "Moment",
    "Place",
    "Stack",
    "leave",
    "place",
    "read_scalars",
    "stack",
]
