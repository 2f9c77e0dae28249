"""What is kept: draws on disk or in memory, with one interface."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.draws.base import AnotherDrawError, Draw, Draws
from csgmcmc.draws.claim import ClaimedError
from csgmcmc.draws.errors import StoreError, StoreWarning
from csgmcmc.draws.memory import MemoryDraws
from csgmcmc.draws.store import DrawStore, keep_trainable

__all__ = [
    "AnotherDrawError",
    "ClaimedError",
    "Draw",
    "DrawStore",
    "Draws",
    "MemoryDraws",
    "StoreError",
    "StoreWarning",
    "discover",
    "keep_trainable",
]


def discover() -> dict[str, type[Draws]]:
    """Every kind of draws of this package by name."""
    return subclasses_in(sys.modules[__name__], Draws)
