"""The network of an estimator: a multilayer perceptron, or the user's own module."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_choice, check_count, check_items, plain_value, shown
from csgmcmc.perceptrons import evaluate_perceptron
from csgmcmc.stacked import Stack

MOST_UNITS = 2**20  # of a layer

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
}

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
    hidden = plain_value(hidden)  # an array of no dimensions is a number
    sizes = [hidden]
    if isinstance(hidden, Iterable):
        sizes = check_items("hidden_layer_sizes", hidden, "a number or a list of numbers")
    widths = [
        check_count("hidden_layer_sizes", size, at_least=1, below=MOST_UNITS) for size in sizes
    ]
    layers: list[nn.Module] = []
    for inputs, width in pairwise((features, *widths, outputs)):
        if layers:
            layers.append(make_activation())
        linear = nn.utils.skip_init(nn.Linear, inputs, width)
        bound = 1 / math.sqrt(inputs)  # as nn.Linear itself, which draws from the global generator
        for param in linear.parameters():
            nn.init.uniform_(param, -bound, bound, generator=generator)
        layers.append(linear)
    return nn.Sequential(*layers)


def own_module(module: Module, features: Tensor, outputs: int) -> nn.Module:
    """A copy of the user's network, or the one that their function makes, tested on two rows."""
    width = features.shape[1]
    made: Any = copy.deepcopy(module) if isinstance(module, nn.Module) else module
    if callable(module) and not isinstance(module, nn.Module):
        made = module(width, outputs)
    if not isinstance(made, nn.Module):
        raise ValueError(
            "module must be a torch.nn.Module, or a function that makes one for "
            f"{width} features and {outputs} outputs, got {shown(made)}"
        )
    device = next((param.device for param in made.parameters()), None)
    try:
        with torch.no_grad():
            found: Any = made.eval()(features[:2].to(device))
    except RuntimeError as error:
        raise ValueError(f"module does not take rows of {width} features: {error}") from error
    made.train()
    shape = tuple(found.shape) if isinstance(found, Tensor) else f"a {type(found).__name__}"
    rows = len(features[:2])
    wanted = [(rows, outputs), (rows,)][: 2 if outputs == 1 else 1]
    if shape not in wanted:
        raise ValueError(
            f"module must return a tensor of shape {wanted[0]} for {rows} rows and {outputs} "
            f"outputs, got {shape}"
        )
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
    """Chains of a perceptron, with or without noise; each batch has a dimension for chains.

    The losses of all chains are evaluated with products of stacked matrices, which is several times
    faster than the `vmap` of a `Stack` for small networks.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__(models)
        network = getattr(self.inner, "network", self.inner)
        # In a tuple, so that they are not registered a second time.
        self._parts = (network, dict(network.named_parameters()), _log_variance_of(self.inner))

    def per_chain(self, function: Callable[..., Tensor], batch: Any) -> Tensor:
        """`function(model, batch)`, which keeps the dimension for chains."""
        return function(self._evaluate, batch)

    def _evaluate(self, features: Tensor) -> Any:
        network, weights, log_variance = self._parts
        outputs = evaluate_perceptron(network, weights, features, stacked=True)
        if log_variance is None:
            return outputs
        return outputs, log_variance.exp().unsqueeze(1).expand_as(outputs)


def _log_variance_of(model: nn.Module) -> Tensor | None:
    return getattr(model, "log_variance", None)
