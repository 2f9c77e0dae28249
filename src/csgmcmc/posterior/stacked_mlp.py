"""Stacks of plain multi-layer perceptrons, as products of stacked matrices.

For a small perceptron the overhead of `vmap` is larger than the arithmetic.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

# Activations that accept any leading dimensions.
ELEMENTWISE = (
    nn.ELU,
    nn.GELU,
    nn.Identity,
    nn.LeakyReLU,
    nn.ReLU,
    nn.Sigmoid,
    nn.SiLU,
    nn.Softplus,
    nn.Tanh,
)


def is_perceptron(model: nn.Module) -> bool:
    """Whether `model` is a sequence of linear layers and activations, after at most a `Flatten`."""
    if type(model) is not nn.Sequential or len(model) == 0 or _has_hooks(model):
        return False
    first, *rest = model
    layers = rest if _flattens(first) else [first, *rest]
    known = (nn.Linear, *ELEMENTWISE)
    return all(type(layer) in known and not _has_hooks(layer) for layer in layers)


def accepts(model: nn.Module, inputs: object) -> bool:
    """Whether these inputs of a perceptron become a matrix: rows of numbers, or flattened ones."""
    if not isinstance(inputs, Tensor) or inputs.ndim < 2 or not isinstance(model, nn.Sequential):
        return False
    return inputs.ndim == 2 or _flattens(model[0])


def evaluate_perceptron(model: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
    """Outputs (draws, batch, ...) of a perceptron for stacked `weights`."""
    assert isinstance(model, nn.Sequential)  # noqa: S101  (it is a perceptron)
    outputs: Tensor | None = None
    for name, layer in model.named_children():
        if isinstance(layer, nn.Flatten):
            inputs = layer(inputs)
        elif isinstance(layer, nn.Linear):
            matrices = weights[f"{name}.weight"].mT
            now = inputs.expand(len(matrices), *inputs.shape) if outputs is None else outputs
            if layer.bias is None:
                outputs = torch.bmm(now, matrices)
            else:
                outputs = torch.baddbmm(weights[f"{name}.bias"].unsqueeze(1), now, matrices)
        elif outputs is None:
            inputs = layer(inputs)
        else:
            outputs = layer(outputs)
    assert outputs is not None  # noqa: S101  (it has weights)
    return outputs


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)
