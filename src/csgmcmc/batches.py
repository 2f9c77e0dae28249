"""Batches of data: which are pairs, where their tensors are, and the loss of a model on one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

Loss = Callable[..., Tensor]
"""Mean negative log-likelihood of a batch; see `batch_loss` for how it is called."""


def is_pair(batch: Any) -> bool:
    """Whether a batch is a pair of inputs and targets."""
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def batch_loss(loss: Loss, model: Callable[..., Any], batch: Any) -> Tensor:
    """`loss(model(inputs), targets)` for a pair, `loss(model, batch)` for any other batch."""
    if is_pair(batch):
        return loss(model(batch[0]), batch[1])
    return loss(model, batch)


def moved(batch: Any, device: torch.device) -> Any:
    """`batch` with all of its tensors on `device`."""
    return pytree.tree_map_only(Tensor, lambda x: x.to(device), batch)
