"""Which positions of a parameter a tensor holds: all of them, those of a shard, or of many chains.

A position counts the numbers of a parameter along its rows, whatever its layout in memory.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.shards import box_of_shard, is_shard
from csgmcmc.stacked import StackedParameter


class Spans(NamedTuple):
    """Spans of consecutive positions, in the order of the tensor's own numbers."""

    first: NDArray[np.int64]
    """Of shape (spans, 2): the chain, counted from that of the noise, and the first position."""
    length: int  # how many positions each span has


Parameters = tuple[tuple[int, bytes, int], ...]
"""Numbers of parameters and their spans, as a key of a dictionary."""


def parameters_of(ids: Sequence[int], spans: Sequence[Spans]) -> Parameters:
    """The numbers of parameters and their spans, as a key of a dictionary."""
    pairs = zip(ids, spans, strict=True)
    return tuple((number, own.first.tobytes(), own.length) for number, own in pairs)


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
    begins, sizes = box_of_shard(shape, mesh, placements)
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
