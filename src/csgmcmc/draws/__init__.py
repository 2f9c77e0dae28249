"""Draws, on disk or in memory, behind one interface."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.draws.base import Draw, Draws, keep_trainable
from csgmcmc.draws.memory import MemoryDraws
from csgmcmc.draws.store import DrawStore

__all__ = [
    "Draw",
    "DrawStore",
    "Draws",
    "MemoryDraws",
    "discover",
    "keep_trainable",
]


def discover() -> dict[str, type[Draws]]:
    """The classes of this package that keep draws, by name."""
    return subclasses_in(sys.modules[__name__], Draws)
