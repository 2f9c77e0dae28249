"""Draws whose predictions are known: computed here one by one, naively, in double precision."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc import Draw, MemoryDraws
from csgmcmc.draws import Draws

TIGHT: dict[str, Any] = {"rtol": 1e-12, "atol": 1e-12}
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}


def randomise(model: nn.Module, seed: int) -> Any:
    """Other parameters and running statistics; what counts is counted to `seed`."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in model.parameters():
            param.normal_(std=0.7, generator=generator)
        for name, buffer in model.named_buffers():
            if name.endswith("running_var"):
                buffer.uniform_(0.5, 2, generator=generator)
            elif buffer.is_floating_point():
                buffer.normal_(generator=generator)
            else:
                buffer.fill_(seed)
    return model


def fill(draws: Draws, make: Callable[[], nn.Module], count: int) -> None:
    """Add draws of models alike but for their weights, in two cycles."""
    for step in range(count):
        draws.append(randomise(make(), seed=step), step=step, cycle=2 * step // count)


def in_memory(make: Callable[[], nn.Module], count: int) -> MemoryDraws:
    draws = MemoryDraws()
    fill(draws, make, count)
    return draws


def outputs_of(model: nn.Module, draws: Iterable[Draw], inputs: Any) -> Tensor:
    """Outputs of the model with the weights of each draw."""
    model = copy.deepcopy(model).eval()
    outputs = []
    for draw in draws:
        draw.load_into(model)
        with torch.no_grad():
            outputs.append(model(inputs))
    return torch.stack(outputs)


class Table(nn.Module):
    """Inputs are numbers of rows, and the weights are the outputs for them."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(rows.clone())

    def forward(self, inputs: Tensor) -> Any:
        return self.rows[inputs]


def tables(outputs: Tensor) -> MemoryDraws:
    """Draws that give the `outputs` (draws, points, ...) for the inputs 0, 1, ..."""
    draws = MemoryDraws()
    for step, rows in enumerate(outputs):
        draws.append(Table(rows), step=step)
    return draws


def mean_and_variance(model: Callable[..., Any], inputs: Any) -> tuple[Tensor, Tensor]:
    """Of a model whose outputs are the mean and the logarithm of the variance."""
    outputs = model(inputs)
    return outputs[..., 0], outputs[..., 1].exp()


def mlp() -> Any:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3))


def conv_net() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    )


class Tied(nn.Module):
    """One matrix under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(self.first(inputs).tanh())


class Branching(nn.Module):
    """Looks at a number that depends on the weights: it cannot be vmapped."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.linear(inputs)
        return outputs if outputs.sum() > 0 else 2 * outputs


class Scale(nn.Module):
    """A model of no more than a product, which says what it sees to `told`."""

    def __init__(self, told: Callable[[Tensor], object] = lambda _: None) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.told = told

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = inputs * self.scale
        self.told(outputs)
        return outputs


def averaged(weights: Sequence[float], values: Tensor) -> Tensor:
    """The weighted mean over the first dimension, in double precision."""
    total = sum(weights)
    terms = [weight / total * value.double() for weight, value in zip(weights, values, strict=True)]
    return torch.stack(terms).sum(0)


def spread(weights: Sequence[float], values: Tensor) -> Tensor:
    """The weighted standard deviation over the first dimension."""
    values = values.double()
    return averaged(weights, (values - averaged(weights, values)).square()).sqrt()


def entropy(probs: Tensor, dim: int) -> Tensor:
    return -torch.special.xlogy(probs, probs).sum(dim)


def gaussian_entropy(variance: Tensor) -> Tensor:
    return (2 * math.pi * math.e * variance).log() / 2


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
