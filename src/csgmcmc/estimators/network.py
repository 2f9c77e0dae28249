"""The networks of an estimator: perceptrons beside a linear model."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from csgmcmc.arguments import check_count, check_items
from csgmcmc.stacked import Stack

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}
MIN_SCALE = 1e-3  # of the noise: a thousandth of the targets' standard deviation
SCALE_PRIOR = 3.0  # standard deviation of the prior of the constant part of the noise


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
    """A perceptron with Gaussian noise, which is the same for all rows, or depends on the row.

    Args:
        network: the second half of its outputs is added to the scales of the noise, before a
            softplus, if the noise depends on the row.
        per_row: whether it does.
    """

    def __init__(self, network: Perceptron, *, per_row: bool) -> None:
        super().__init__()
        self.network = network
        self.noise = nn.Parameter(torch.zeros(network.means, device="cpu"))
        self.register_buffer("per_row", torch.tensor(float(per_row), device="cpu"))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each row and output."""
        means, scales = self.network(features).chunk(2, dim=-1)
        share: Any = self.per_row
        scales = self.noise.unsqueeze(-2) + share[..., None, None] * scales
        return means, (softplus(scales) + MIN_SCALE).square()

    def precisions(self, prior_scale: float) -> dict[str, Tensor]:
        """The prior's precision of each parameter, by its name."""
        inner = self.network.precisions(prior_scale).items()
        constant = torch.full(self.noise.shape, 1 / SCALE_PRIOR**2, device="cpu")
        return {"noise": constant, **{f"network.{name}": each for name, each in inner}}


def _affine(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.ndim == 2:
        return torch.addmm(bias, inputs, weight)
    return torch.baddbmm(bias.unsqueeze(1), inputs, weight)
