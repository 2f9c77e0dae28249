"""Shuffled minibatches of the rows of a table."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

# Rows are gathered for that many batches together: one batch at a time takes a good part of a step
# of a small network, and all at once would be a second copy of a large table.
BATCHES_AT_ONCE = 16


class Batches:
    """Minibatches of nearly equal size, in a new order each epoch.

    A `DataLoader` collates row by row, which takes most of the time for small networks, and its
    last batch may be a single row, which batch normalisation rejects.
    """

    draws_globally = False  # the order is from `generator`, and nothing else is random

    def __init__(
        self, features: Tensor, targets: Tensor, batch_size: int, generator: torch.Generator
    ) -> None:
        self.dataset = TensorDataset(features, targets)
        self.batch_size = min(batch_size, len(features))
        self.generator = generator

    def __len__(self) -> int:
        return math.ceil(len(self.dataset) / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        order = torch.randperm(len(self.dataset), generator=self.generator)
        batches = order.tensor_split(len(self))
        for first in range(0, len(batches), BATCHES_AT_ONCE):
            some = batches[first : first + BATCHES_AT_ONCE]
            rows, sizes = torch.cat(some), [len(one) for one in some]
            gathered = [column.index_select(0, rows) for column in self.dataset.tensors]
            yield from zip(*(column.split(sizes) for column in gathered), strict=True)
