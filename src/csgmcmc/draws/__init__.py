"""Draws, on disk or in memory, behind one interface."""

from csgmcmc.draws.base import Draw, Draws, keep_trainable
from csgmcmc.draws.memory import MemoryDraws
from csgmcmc.draws.store import DrawStore

__all__ = ["Draw", "DrawStore", "Draws", "MemoryDraws", "keep_trainable"]
