"""Which positions of a parameter a tensor holds: all of them, those of a shard, or of many chains.

A position counts the numbers of a parameter along its rows, whatever its layout in memory.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.shards import box_of_shard, is_shard
from csgmcmc.stacked import StackedParameter


class Runs(NamedTuple):
    """Runs of consecutive positions, in the order of the tensor's own numbers.

    Attributes:
        first: int64, of shape (runs, 2): the chain of each run, counted from that of the noise, and
            its first position.
        length: how many positions each run has.
    """

    first: NDArray[np.int64]
    length: int


def runs_of(param: Tensor) -> Runs:
    """The positions of the numbers of `param` that this process holds."""
    if isinstance(param, StackedParameter):
        return _runs_of_chains(len(param), param.numel() // max(len(param), 1))
    if is_shard(param):
        sharded: Any = param
        return _runs_of_shard(tuple(param.shape), sharded.device_mesh, sharded.placements)
    return _runs_of_chains(1, param.numel())


@lru_cache(maxsize=1024)
def _runs_of_chains(chains: int, size: int) -> Runs:
    first = np.zeros((chains, 2), np.int64)
    first[:, 0] = range(chains)
    return Runs(first, size)


@lru_cache(maxsize=1024)
def _runs_of_shard(shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]) -> Runs:
    """The runs of a DTensor's local tensor: a box in the whole tensor."""
    begins, sizes = box_of_shard(shape, mesh, placements)
    # The dimensions after `inner` are whole, so that a run goes through them.
    inner = max((i for i in range(len(shape)) if sizes[i] < shape[i]), default=0)
    after = math.prod(shape[inner + 1 :])
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    starts = np.array([sum(b * s for b, s in zip(begins, strides, strict=True))])
    for size, stride in zip(sizes[:inner], strides[:inner], strict=True):
        starts = np.add.outer(starts, stride * np.arange(size))
    starts = starts.reshape(-1)
    length = sizes[inner] * after if shape else 1
    return Runs(np.stack([np.zeros_like(starts), starts], axis=1), length)
