"""Which positions of a parameter a tensor holds: all of them, those of a shard, or of many chains.

A position counts the numbers of a parameter along its rows, whatever its layout in memory.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.shards import is_shard, slices_of_shard
from csgmcmc.stacked import StackedParameter


@dataclass(frozen=True, eq=False)  # hashed by identity: `spans_of` returns the same ones again
class Spans:
    """Spans of consecutive positions, in the order of the tensor's own numbers."""

    first: NDArray[np.int64]
    """Of shape (spans, 2): the chain, counted from that of the noise, and the first position."""
    length: int  # how many positions each span has

    @property
    def total(self) -> int:
        """Number of positions of all spans."""
        return len(self.first) * self.length


def spans_of(param: Tensor) -> Spans:
    """The positions of the numbers of `param` that this process holds."""
    if isinstance(param, StackedParameter):
        return _spans_of_chains(len(param), param.numel() // max(len(param), 1))
    if is_shard(param):
        sharded: Any = param
        return _spans_of_shard(tuple(param.shape), sharded.device_mesh, sharded.placements)
    return _spans_of_chains(1, param.numel())


@lru_cache(maxsize=1024)
def _spans_of_chains(chains: int, size: int) -> Spans:
    first = np.zeros((chains, 2), np.int64)
    first[:, 0] = range(chains)
    return Spans(first, size)


@lru_cache(maxsize=1024)
def _spans_of_shard(shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]) -> Spans:
    """The spans of a DTensor's local tensor: a box in the whole tensor."""
    slices = slices_of_shard(shape, mesh, placements)
    begins, sizes = [each.start for each in slices], [each.stop - each.start for each in slices]
    # The dimensions after `inner` are whole, so that a span continues through them.
    inner = max((i for i in range(len(shape)) if sizes[i] < shape[i]), default=0)
    after = math.prod(shape[inner + 1 :])
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    starts = np.array([sum(b * s for b, s in zip(begins, strides, strict=True))])
    for size, stride in zip(sizes[:inner], strides[:inner], strict=True):
        starts = np.add.outer(starts, stride * np.arange(size))
    starts = starts.reshape(-1)
    length = sizes[inner] * after if shape else 1
    return Spans(np.stack([np.zeros_like(starts), starts], axis=1), length)
