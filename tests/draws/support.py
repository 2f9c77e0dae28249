"""Stores whose draws are known, and where their files are."""

from pathlib import Path

import pytest
import torch

from csgmcmc.draws import DrawStore
from csgmcmc.errors import StoreWarning


def fill(path: Path, count=5, chain=0, size=100) -> DrawStore:
    store = DrawStore(path)
    for step in range(count):
        store.append({"w": torch.full((size,), float(step))}, step=step, chain_id=chain)
    store.close()
    return store


def reopened(path: Path) -> DrawStore:
    """Open, and expect to be told of damage."""
    with pytest.warns(StoreWarning):
        return DrawStore(path)


def draw_file(path: Path, step: int, chain=0) -> Path:
    return path / "draws" / f"{chain:04d}-{step:09d}.safetensors"
