"""Shuffled minibatches of the rows of a table."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import TensorDataset


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
        for rows in order.tensor_split(len(self)):
            # Half the time of indexing: this is a good part of a step of a small network.
            yield tuple(column.index_select(0, rows) for column in self.dataset.tensors)
