"""How a loss is evaluated on a batch: the same everywhere."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

Loss = Callable[..., Tensor]
"""Mean negative log-likelihood: `loss(outputs, targets)`, or `loss(model, batch)`."""


def batch_loss(loss: Loss | None, model: Callable[..., Tensor], batch: Any) -> Tensor:
    """The loss of a model on one batch.

    A batch that is a pair (inputs, targets) is evaluated as `loss(model(inputs), targets)`, any
    other as `loss(model, batch)`. Without a loss the model is a density, which returns U.
    """
    if loss is None:
        return model()
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return loss(model(batch[0]), batch[1])
    return loss(model, batch)
