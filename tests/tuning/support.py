"""A task that is learned in a moment."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import Recipe, Task
from csgmcmc.tuning import tune

EPOCHS = 16  # of 6 steps
RECIPE = Recipe(draws_per_cycle=2, temperature=0.01)


def points(size: int = 120) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(size, 4, generator=generator)
    noise = 0.5 * torch.randn(size, generator=generator)
    return TensorDataset(inputs, (inputs.sum(1) + noise > 0).long())


def make_task(loss: Callable[..., torch.Tensor] = cross_entropy, **values: Any) -> Task:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    given = {
        "data": DataLoader(points(), batch_size=20, shuffle=True),
        "validation": DataLoader(TensorDataset(*points(300)[120:]), batch_size=60),
        "recipe": RECIPE,
    }
    return Task(model, loss, **{**given, **values})


def search(out: Any, make: Callable[[], Any] = make_task, **options: Any) -> Recipe:
    """A search of a few short trials."""
    options = {"trials": 3, "epochs": EPOCHS, "lr": 0.1, "cycles": (1, 2, 4), **options}
    return tune(make, out, **{"exploration": (0.3, 0.9), "progress": False, **options})
