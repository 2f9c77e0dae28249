"""The network of an estimator: a multilayer perceptron, or the user's own module."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_choice, check_count, check_items, shown
from csgmcmc.stacked import Stack, evaluate_perceptron

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}

Module = nn.Module | Callable[[int, int], nn.Module]
"""A network, or a function (or class) that makes one from the numbers of features and outputs."""


def perceptron(
    features: int,
    hidden: int | Iterable[int],
    outputs: int,
    activation: str,
    generator: torch.Generator,
) -> nn.Sequential:
    """Linear layers with activations between them, initialised from `generator` alone."""
    make_activation = ACTIVATIONS[check_choice("activation", activation, tuple(ACTIVATIONS))]
    name = "hidden_layer_sizes"
    many = isinstance(hidden, Iterable)
    sizes = check_items(name, hidden, "a number or a list of numbers") if many else [hidden]
    widths = [check_count(name, size, at_least=1, below=2**20) for size in sizes]
    layers: list[nn.Module] = []
    for inputs, width in pairwise((features, *widths, outputs)):
        if layers:
            layers.append(make_activation())
        linear = nn.utils.skip_init(nn.Linear, inputs, width, device="cpu")
        bound = 1 / math.sqrt(inputs)  # as nn.Linear itself, which draws from the global generator
        for param in linear.parameters():
            nn.init.uniform_(param, -bound, bound, generator=generator)
        layers.append(linear)
    return nn.Sequential(*layers)


def own_module(module: Module, features: Tensor, outputs: int) -> nn.Module:
    """A copy of the user's network, or the one that their function makes, tested on two rows."""
    width, rows = features.shape[1], len(features[:2])
    makes = callable(module) and not isinstance(module, nn.Module)
    made: Any = module(width, outputs) if makes else copy.deepcopy(module)
    if not isinstance(made, nn.Module):
        raise ValueError(f"module must be a torch.nn.Module, or make one, got {shown(made)}")
    device = next((param.device for param in made.parameters()), None)
    try:
        with torch.no_grad():
            found: Any = made.eval()(features[:2].to(device))
    except RuntimeError as error:
        raise ValueError(f"module does not take rows of {width} features: {error}") from error
    made.train()
    shape = tuple(found.shape) if isinstance(found, Tensor) else f"a {type(found).__name__}"
    wanted = [(rows, outputs), (rows,)][: 2 if outputs == 1 else 1]
    if shape not in wanted:
        raise ValueError(f"module must return a tensor of shape {wanted[0]}, got {shape}")
    if not any(param.requires_grad for param in made.parameters()):
        raise ValueError("module has no trainable parameter: there is nothing to sample")
    return made


class WithNoise(nn.Module):
    """A network that predicts means, with the log-variance of the noise of each output."""

    def __init__(self, network: nn.Module, outputs: int) -> None:
        super().__init__()
        self.network = network
        device = next(network.parameters()).device
        self.log_variance = nn.Parameter(torch.zeros(outputs, device=device))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each row and output."""
        means = self.network(features)
        means = means.unsqueeze(-1) if means.ndim == 1 else means
        return means, self.log_variance.exp().expand_as(means)


class Perceptrons(Stack):
    """Chains of a perceptron; each batch has a dimension for chains.

    The losses of all chains are evaluated with products of stacked matrices, which is several times
    faster for small networks than the `vmap` of a `Stack`.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__(models)
        self._weights = dict(self.inner.named_parameters())

    def per_chain(self, function: Callable[..., Tensor], batch: Any) -> Tensor:
        """`function(model, batch)`, which keeps the dimension for chains."""
        model = partial(evaluate_perceptron, self.inner, self._weights, stacked=True)
        return function(model, batch)
