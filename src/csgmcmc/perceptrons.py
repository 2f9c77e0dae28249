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


def evaluate_perceptron(
    model: nn.Module, weights: Mapping[str, Tensor], inputs: Tensor, *, stacked: bool = False
) -> Tensor:
    """Outputs (draws, batch, ...) of a perceptron for stacked `weights`.

    All draws have the same inputs or, if `stacked`, each its own: (draws, batch, features).
    """
    outputs = inputs
    for name, layer in model.named_children():
        if not isinstance(layer, nn.Linear):
            outputs = layer(outputs)  # of these only a `Flatten` depends on the shape: it is first
            continue
        matrices = weights[f"{name}.weight"].mT
        if not stacked:
            outputs, stacked = outputs.expand(len(matrices), *outputs.shape), True
        if layer.bias is None:
            outputs = torch.bmm(outputs, matrices)
        else:
            outputs = torch.baddbmm(weights[f"{name}.bias"].unsqueeze(1), outputs, matrices)
    return outputs


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)
