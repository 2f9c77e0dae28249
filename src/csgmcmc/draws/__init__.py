"""What is kept: draws on disk or in memory, with one interface."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.draws.base import Draw, Draws
from csgmcmc.draws.memory import MemoryDraws
from csgmcmc.draws.store import DrawStore, keep_trainable

__all__ = [
    "Draw",
    "DrawStore",
    "Draws",
    "MemoryDraws",
    "discover",
    "keep_trainable",
]


def discover() -> dict[str, type[Draws]]:
    """Every kind of draws of this package by name."""
    return subclasses_in(sys.modules[__name__], Draws)
