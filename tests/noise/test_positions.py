"""Positions of shards, against slices of a tensor that holds its own positions."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.tensor import Replicate, Shard

from csgmcmc.noise.positions import _spans_of_shard


@dataclass(frozen=True)
class Mesh:
    """As much of a `DeviceMesh` as is needed: its sizes, and where this process is in it."""

    sizes: tuple[int, ...]
    here: tuple[int, ...]

    @property
    def ndim(self) -> int:
        return len(self.sizes)

    def size(self, dimension: int) -> int:
        return self.sizes[dimension]

    def get_local_rank(self, dimension: int) -> int:
        return self.here[dimension]


def held(spans: Any) -> np.ndarray:
    return (spans.first[:, 1:] + np.arange(spans.length)).reshape(-1)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple),
    data=st.data(),
)
def test_shards_hold_what_chunks_of_the_tensor_hold(shape, sizes, data):
    placement = st.sampled_from([Replicate(), *(Shard(dim) for dim in range(len(shape)))])
    placements = data.draw(st.tuples(*[placement] * len(sizes)))
    positions = torch.arange(math.prod(shape)).reshape(shape)
    seen = []
    for here in itertools.product(*map(range, sizes)):
        local = positions
        for size, rank, placed in zip(sizes, here, placements, strict=True):
            if isinstance(placed, Shard):
                chunks = local.chunk(size, placed.dim)
                empty = local.narrow(placed.dim, 0, 0)
                local = chunks[rank] if rank < len(chunks) else empty
        spans = _spans_of_shard(shape, Mesh(sizes, here), placements)
        assert held(spans).tolist() == local.flatten().tolist()
        assert (spans.first[:, 0] == 0).all()
        seen.append(local.flatten())
    assert set(torch.cat(seen).tolist()) == set(range(positions.numel()))
