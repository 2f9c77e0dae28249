"""Shuffled minibatches of the rows of a table, for one chain or for several at once."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

# Rows are gathered for that many batches together: one batch at a time takes a good part of a step
# of a small network, and all at once would be a second copy of a large table.
BATCHES_AT_ONCE = 16


class Batches:
    """Minibatches of nearly equal size, in a new order each epoch.

    A batch is a pair of the features and of a tuple of the other columns. For several chains all
    have a leading dimension for chains, and every chain has rows and an order of its own. Chains
    may differ by a few rows: in each epoch all have as many as the shortest, at random.

    A `DataLoader` collates row by row, which takes most of the time for small networks, and its
    last batch may be a single row, which batch normalisation rejects.

    Args:
        features: the rows of the table.
        columns: targets and all else that the loss needs, one entry for each row.
        rows: for each chain, the numbers of its rows.
        batch_size: rows of a batch and chain, at most.
        seeds: of the order, one for each chain.
        stacked: whether batches have a dimension for chains; without it there is one chain.
        rows_per_epoch: rows of a chain and epoch; by default as many as the shortest chain has.
    """

    draws_globally = False  # the order is from `generators`, and nothing else is random

    def __init__(
        self,
        features: Tensor,
        columns: Sequence[Tensor],
        rows: Sequence[Tensor],
        batch_size: int,
        seeds: Sequence[int],
        *,
        stacked: bool,
        rows_per_epoch: int | None = None,
    ) -> None:
        self.dataset = TensorDataset(features, *columns)
        self.rows, self.stacked = rows, stacked
        self.rows_per_epoch = rows_per_epoch or min(len(own) for own in rows)
        self.batch_size = min(batch_size, self.rows_per_epoch)
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __len__(self) -> int:
        return math.ceil(self.rows_per_epoch / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        shuffled = [
            own[torch.randperm(len(own), generator=generator)[: self.rows_per_epoch]]
            for own, generator in zip(self.rows, self.generators, strict=True)
        ]
        batches = torch.stack(shuffled).tensor_split(len(self), dim=1)
        for first in range(0, len(batches), BATCHES_AT_ONCE):
            some = batches[first : first + BATCHES_AT_ONCE]
            gathered = [self._gather(column, some) for column in self.dataset.tensors]
            for features, *columns in zip(*gathered, strict=True):
                yield features, tuple(columns)

    def _gather(self, column: Tensor, batches: Sequence[Tensor]) -> list[Any]:
        """The rows of some batches of one column."""
        numbers = torch.cat([batch.flatten() for batch in batches])
        parts = column.index_select(0, numbers).split([batch.numel() for batch in batches])
        if not self.stacked:
            return list(parts)
        return [part.unflatten(0, (len(self.rows), -1)) for part in parts]
