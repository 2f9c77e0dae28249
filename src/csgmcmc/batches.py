"""Batches of data: which are pairs, and the loss of a model on one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[..., Tensor]
"""Mean negative log-likelihood of a batch; see `batch_loss` for how it is called."""


def is_pair(batch: Any) -> bool:
    """Whether a batch is a pair of inputs and targets."""
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def batch_loss(loss: Loss | None, model: Callable[..., Any], batch: Any) -> Tensor:
    """`loss(model(inputs), targets)` for a pair, `loss(model, batch)` for any other batch.

    Without a loss the model is a density, which returns U.
    """
    if loss is None:
        return model()
    if is_pair(batch):
        return loss(model(batch[0]), batch[1])
    return loss(model, batch)


@contextmanager
def quietly(model: nn.Module) -> Iterator[None]:
    """Evaluate `model` without side effects: no gradients, eval mode, and modes restored after."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode
