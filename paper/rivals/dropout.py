"""MC dropout: dropout in training, and masks drawn again for prediction.

A mask z on the inputs of a linear layer W is the layer W diag(z), z_i = 0 with probability `rate`,
else 1 / (1 - rate). So a set of masks is a set of weights, and K stochastic passes are K draws (Gal
and Ghahramani, "Dropout as a Bayesian Approximation", ICML 2016). All rows of a batch then share
their masks; of each row the prediction has the distribution that it has with masks of its own.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch.utils.hooks import RemovableHandle

from csgmcmc.draws import MemoryDraws
from paper.arguments import check_count, check_number


def add_dropout(model: nn.Module, rate: float) -> list[RemovableHandle]:
    """Drop inputs of the linear layers of `model` while it is in training mode, in place.

    All linear layers but one that is the first layer with weights: every layer but the first of an
    `mlp`, and the classifier of a ResNet. The names of the weights stay the same. `remove()` of
    what is returned ends it.
    """
    hook = partial(_drop, _check_rate(rate))
    return [layer.register_forward_pre_hook(hook) for layer in dropped_layers(model).values()]


@torch.no_grad()
def dropout_draws(model: nn.Module, rate: float, count: int, *, seed: int) -> MemoryDraws:
    """Networks whose weights are those of `model` under `count` sets of masks."""
    check_count("count", count, at_least=1)
    _check_rate(rate)
    generator = torch.Generator().manual_seed(seed)
    state = {name: value.detach() for name, value in model.state_dict().items()}
    draws = MemoryDraws()
    for number in range(count):
        masked = dict(state)
        for name, layer in dropped_layers(model).items():
            kept = torch.rand(layer.in_features, generator=generator) >= rate
            mask = kept.to(layer.weight) / (1 - rate)
            masked[f"{name}.weight"] = layer.weight.detach() * mask
        draws.append(masked, step=number)
    return draws


def dropped_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers whose inputs are dropped, by their names."""
    weighted = {
        name: module
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    }
    _, *later = weighted.items()
    found = {name: module for name, module in later if isinstance(module, nn.Linear)}
    if not found:
        raise ValueError("the model has no linear layer after its first layer, for dropout")
    return found


def _check_rate(rate: float) -> float:
    if not 0 <= check_number("rate", rate) < 1:
        raise ValueError(f"rate must be at least 0 and below 1, got {rate!r}")
    return rate


def _drop(rate: float, layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    first, *rest = inputs
    return (dropout(first, rate, training=layer.training), *rest)
