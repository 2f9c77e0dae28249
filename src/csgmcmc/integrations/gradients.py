"""Gradients of loops that accumulate batches."""

from collections.abc import Iterable

from torch import Tensor


def rescale_short_accumulation(params: Iterable[Tensor], batches: int, divided_by: int) -> None:
    """Make gradients the mean over `batches`, if the loop has divided by a larger number.

    Loops divide each loss by the number of batches that a step accumulates, also in the last step
    of an epoch, where fewer may be left.
    """
    if batches < divided_by:
        for param in params:
            if param.grad is not None:
                param.grad.mul_(divided_by / batches)
