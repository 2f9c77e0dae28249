"""The networks of an estimator: perceptrons beside a linear model, or the user's own module."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from csgmcmc.arguments import check_count, check_items, shown
from csgmcmc.stacked import Stack

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}
MIN_SCALE = 1e-3  # of the noise: a thousandth of the targets' standard deviation
SCALE_PRIOR = 3.0  # standard deviation of the prior of the constant part of the noise

Module = nn.Module | Callable[[int, int], nn.Module]
"""A network, or a function (or class) that makes one from the numbers of features and outputs."""


def check_widths(hidden: int | Iterable[int]) -> list[int]:
    """The widths of the hidden layers."""
    name = "hidden_layer_sizes"
    many = isinstance(hidden, Iterable)
    sizes = check_items(name, hidden, "a number or a list of numbers") if many else [hidden]
    return [check_count(name, size, at_least=1, below=2**20) for size in sizes]


class Perceptron(nn.Module):
    """A multilayer perceptron, to whose outputs those of a linear model are added.

    Parameters and inputs may have a leading dimension for networks, whose products are then
    batched.

    Args:
        sizes: numbers of columns, of units in each hidden layer, and of outputs. Without hidden
            layers it is a linear model.
        activation: between the layers.
        noisy: of the outputs, the number of the last that are scales of noise: they begin at 0, and
            the width of their prior is fixed.
    """

    def __init__(self, sizes: Sequence[int], activation: str, noisy: int = 0) -> None:
        super().__init__()
        features, *widths, outputs = sizes
        self.means, self.activation = outputs - noisy, ACTIVATIONS[activation]()
        self.linear = nn.Parameter(torch.zeros(features, outputs, device="cpu"))
        self.bias = nn.Parameter(torch.zeros(outputs, device="cpu"))
        pairs = pairwise(sizes) if widths else ()
        starts = (torch.randn(pair, device="cpu") for pair in pairs)
        self.weights = nn.ParameterList(start / math.sqrt(len(start)) for start in starts)
        self.biases = nn.ParameterList(torch.zeros(width, device="cpu") for width in widths)
        if noisy and widths:
            with torch.no_grad():
                self.weights[-1][:, self.means :] = 0

    def forward(self, features: Tensor) -> Tensor:
        found, hidden = _affine(features, self.linear, self.bias), features
        for weight, bias in zip(self.weights, self.biases, strict=False):
            hidden = self.activation(_affine(hidden, weight, bias))
        return found + hidden @ self.weights[-1] if len(self.weights) else found

    def precisions(self, prior_scale: float) -> dict[str, Tensor]:
        """The prior's precision of each parameter, by its name.

        Weights have the standard deviation prior_scale / sqrt(inputs), biases prior_scale; those of
        the linear model 1, or prior_scale if there is nothing else; those of the noise 1 /
        sqrt(inputs).
        """
        found = {}
        for name, param in self.named_parameters():
            inputs = len(param) if param.ndim == 2 else 1
            scale = prior_scale / math.sqrt(inputs)
            if name in ("linear", "bias"):
                scale = 1.0 if len(self.weights) else prior_scale
            found[name] = torch.full(param.shape, 1 / scale**2, device="cpu")
            if name in ("linear", "bias", f"weights.{len(self.biases)}"):
                found[name][..., self.means :] = inputs
        return found


class Perceptrons(Stack):
    """Perceptrons of one shape side by side; each batch has a dimension for them."""

    def per_chain(self, function: Callable[..., Tensor], batch: Any) -> Tensor:
        """`function(model, batch)`, which keeps the dimension for networks."""
        return function(self.inner, batch)


class WithNoise(nn.Module):
    """A network with Gaussian noise, which is the same for all rows, or depends on the row.

    Args:
        network: its first outputs are means; those that follow are added to the scales of the
            noise, before a softplus.
        outputs: number of means.
        per_row: whether they are.
    """

    def __init__(self, network: nn.Module, outputs: int, *, per_row: bool) -> None:
        super().__init__()
        self.network, self.outputs = network, outputs
        device = next(network.parameters()).device
        self.noise = nn.Parameter(torch.zeros(outputs, device=device))
        self.register_buffer("per_row", torch.tensor(float(per_row), device=device))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each row and output."""
        found = self.network(features)
        found = found.unsqueeze(-1) if found.ndim == 1 else found
        means, scales = found[..., : self.outputs], self.noise.unsqueeze(-2)
        if found.shape[-1] > self.outputs:
            share: Any = self.per_row
            scales = scales + share[..., None, None] * found[..., self.outputs :]
        return means, (softplus(scales.expand_as(means)) + MIN_SCALE).square()


def is_perceptron(network: nn.Module) -> bool:
    """Whether it is the estimators' own network, with or without noise."""
    inner = network.network if isinstance(network, WithNoise) else network
    return isinstance(inner, Perceptron)


def precisions_of(network: nn.Module, prior_scale: float) -> dict[str, Tensor]:
    """The precision of the prior of each parameter, by its name."""
    if isinstance(network, WithNoise):
        inner = precisions_of(network.network, prior_scale).items()
        constant = torch.full_like(network.noise, 1 / SCALE_PRIOR**2, device="cpu")
        return {"noise": constant.detach(), **{f"network.{name}": each for name, each in inner}}
    if isinstance(network, Perceptron):
        return network.precisions(prior_scale)
    precision = torch.tensor(1 / prior_scale**2, device="cpu")
    return {name: precision for name, _ in network.named_parameters()}


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


def _affine(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.ndim == 2:
        return torch.addmm(bias, inputs, weight)
    return torch.baddbmm(bias.unsqueeze(1), inputs, weight)
