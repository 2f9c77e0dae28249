"""The rows of a table in shuffled minibatches."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import TensorDataset


class Batches:
    """Minibatches of nearly equal size, in a new order each time.

    A `DataLoader` would take the rows one by one, which for small networks is most of the time, and
    its last batch may be a single row, which batch normalisation refuses.

    Args:
        features: one row for each data point.
        targets: as many targets.
        batch_size: the most rows in a batch; where there are fewer rows, all of them are one.
        generator: what the order is drawn from.
    """

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
            yield self.dataset[rows]
