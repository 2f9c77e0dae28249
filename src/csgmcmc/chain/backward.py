"""The backward pass of a loss, without the cost of what `Tensor.backward` checks at every call.

`Tensor.backward` looks for overloads, makes the gradient of the loss and stores the context of the
caller for threads of other devices, all in Python. For a small network on the CPU that is a tenth
of a step. Here the engine is called as `Tensor.backward` calls it in the end.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Variable


def is_loss(found: Any, shape: tuple[int, ...]) -> bool:
    """Whether it is a real number for each chain, with gradients."""
    return (
        isinstance(found, Tensor)
        and found.shape == shape
        and found.requires_grad
        and not found.is_complex()
    )


def describe_no_loss(found: Any, shape: tuple[int, ...]) -> str:
    """What is wrong with what is no such loss."""
    wanted = "loss must be one number for each chain, the mean over the batch"
    if not isinstance(found, Tensor):
        return (
            f"{wanted}, as a tensor with gradients; got a {type(found).__name__}: return what "
            "torch's functions return, without .item() or float()"
        )
    if found.is_complex() or found.shape != shape:
        return f"{wanted}; got a tensor of shape {tuple(found.shape)} and {found.dtype}"
    return (
        "loss must have gradients, got a tensor without: compute it from the model's outputs, "
        "without detach(), no_grad(), .item() or argmax, and of parameters with requires_grad=True"
    )


def backward(loss: Tensor) -> None:
    """The same gradients as those of `loss.backward()`; `loss` is a real number."""
    # Elsewhere than on the CPU the time is hidden, and threads of the device need the context.
    if type(loss) is not Tensor or not loss.is_cpu:
        loss.backward()
        return
    keep_graph = create_graph = False
    inputs, allow_unreachable, accumulate = (), True, True  # into the `grad` of all parameters
    Variable._execution_engine.run_backward(
        (loss,),
        (torch.ones_like(loss),),
        keep_graph,
        create_graph,
        inputs,
        allow_unreachable,
        accumulate,
    )
