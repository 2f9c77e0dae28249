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
        features: number of columns.
        widths: of the hidden layers; without any it is a linear model.
        outputs: of the perceptron; those of `noisy` are twice as many.
        activation: between the layers.
        generator: of the initial weights.
        noisy: return mean and variance of each target, instead of logits: the second half of the
            outputs are scales of the noise, before a softplus.
        per_row: whether the noise depends on the row.
    """

    def __init__(
        self,
        features: int,
        widths: Sequence[int],
        outputs: int,
        activation: str,
        generator: torch.Generator,
        *,
        noisy: bool = False,
        per_row: bool = False,
    ) -> None:
        super().__init__()
        self.noisy, self.means = noisy, outputs
        columns = 2 * outputs if noisy else outputs
        self.activation = ACTIVATIONS[activation]()
        self.linear = nn.Parameter(torch.zeros(features, columns))
        self.bias = nn.Parameter(torch.zeros(columns))
        sizes = (features, *widths, columns)[: 0 if not widths else None]
        self.weights = nn.ParameterList(
            torch.randn(inputs, width, generator=generator) / math.sqrt(inputs)
            for inputs, width in pairwise(sizes)
        )
        self.biases = nn.ParameterList(torch.zeros(width) for width in widths)
        self._last = str(len(widths))  # the number of the last of `weights`
        if noisy:
            self.register_buffer("per_row", torch.tensor(float(per_row)))
            if widths:
                with torch.no_grad():
                    self.weights[-1][:, outputs:] = 0

    def forward(self, features: Tensor) -> Any:
        """Logits; or, if `noisy`, mean and variance of each row and output."""
        found, hidden = _affine(features, self.linear, self.bias), features
        for weight, bias in zip(self.weights, self.biases, strict=False):
            hidden = self.activation(_affine(hidden, weight, bias))
        if len(self.weights):
            found = found + hidden @ self.weights[-1]
        if not self.noisy:
            return found
        constant = self.bias[..., self.means :].unsqueeze(-2)
        share: Any = self.per_row[..., None, None]  # pyright: ignore[reportIndexIssue]
        return found[..., : self.means], _variance(
            constant + share * (found[..., self.means :] - constant)
        )

    def precisions(self, prior_scale: float) -> dict[str, Tensor]:
        """The prior's precision of each parameter, by its name.

        Weights have the standard deviation prior_scale / sqrt(inputs), biases prior_scale; those of
        the linear model 1, or prior_scale if there is nothing else. Of the scales of the noise,
        weights have 1 / sqrt(inputs).
        """
        found = {}
        for name, param in self.named_parameters():
            kind, _, number = name.partition(".")
            inputs = len(param) if param.ndim == 2 else 1
            scale = prior_scale / math.sqrt(inputs)
            if kind in ("linear", "bias"):
                scale = 1.0 if len(self.weights) else prior_scale
            found[name] = torch.full(param.shape, 1 / scale**2)
            is_output = kind in ("linear", "bias") or (kind, number) == ("weights", self._last)
            if self.noisy and is_output:
                own = 1 / SCALE_PRIOR**2 if kind == "bias" else float(inputs)
                found[name][..., self.means :] = own
        return found


class Perceptrons(Stack):
    """Perceptrons of one shape side by side; each batch has a dimension for them."""

    def per_chain(self, function: Callable[..., Tensor], batch: Any) -> Tensor:
        """`function(model, batch)`, which keeps the dimension for networks."""
        return function(self.inner, batch)


class WithNoise(nn.Module):
    """A user's network with the noise of each output, or with one that it returns for each row."""

    def __init__(self, network: nn.Module, outputs: int, *, per_row: bool) -> None:
        super().__init__()
        self.network, self.outputs, self.per_row = network, outputs, per_row
        device = next(network.parameters()).device
        self.noise = nn.Parameter(torch.zeros(outputs, device=device))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of each row and output."""
        found = self.network(features)
        found = found.unsqueeze(-1) if found.ndim == 1 else found
        means = found[..., : self.outputs]
        scales = self.noise + found[..., self.outputs :] if self.per_row else self.noise
        return means, _variance(scales.expand_as(means))


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


def _variance(scales: Tensor) -> Tensor:
    return (softplus(scales) + MIN_SCALE).square()
