"""The backward pass of a loss, without the cost of what `Tensor.backward` checks at every call.

`Tensor.backward` looks for overloads, makes the gradient of the loss and stores the context of the
caller for threads of other devices, all in Python. For a small network on the CPU that is a tenth
of a step. Here the engine is called as `Tensor.backward` calls it in the end.
"""

import torch
from torch import Tensor
from torch.autograd import Variable


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
