"""Data of `truth`: small enough for long HMC, with inputs unlike the training data beside them."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paper.data import load_digits, load_letters

MOONS = {"train": 100, "validation": 200, "test": 500}
NOISE = 0.2
HALF_WIDTH, GRID = 4.0, 20  # of the plane around the moons, in sd of the data


class Part(NamedTuple):
    """Inputs (rows, features), and their classes."""

    inputs: Tensor
    labels: Tensor


class Source(NamedTuple):
    """Data to train on, to choose step sizes by, to test with, and inputs of another kind."""

    train: Part
    validation: Part
    test: Part
    outside: Tensor

    def to(self, device: torch.device) -> "Source":
        """The same on a device."""

        def moved(part: Part) -> Part:
            return Part(part.inputs.to(device), part.labels.to(device))

        parts = map(moved, (self.train, self.validation, self.test))
        return Source(*parts, outside=self.outside.to(device))


@cache
def load(name: str) -> Source:
    """The data set `name`, standardised by its training data; cached, as there are many jobs."""
    parts, outside = _digits() if name == "digits" else _moons()
    train = parts[0].inputs
    mean, sd = (train.mean(), train.std()) if name == "digits" else (train.mean(0), train.std(0))
    parts = [Part((part.inputs - mean) / sd, part.labels) for part in parts]
    return Source(*parts, (outside - mean) / sd)


def _digits() -> tuple[list[Part], Tensor]:
    digits = load_digits()
    parts = [Part(part.tensors[0].flatten(1), part.tensors[1]) for part in digits]
    return parts, load_letters().flatten(1)


def _moons() -> tuple[list[Part], Tensor]:
    """Moons, and a grid on a plane that is wider than they are."""
    from sklearn import datasets  # noqa: PLC0415  (takes a second to import)

    parts = []
    for seed, count in enumerate(MOONS.values()):
        points, labels = datasets.make_moons(count, noise=NOISE, random_state=seed)
        parts.append(Part(torch.as_tensor(points, dtype=torch.float32), torch.as_tensor(labels)))
    line = np.linspace(-HALF_WIDTH, HALF_WIDTH, GRID)
    plane = torch.as_tensor(np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)).float()
    train = parts[0].inputs
    return parts, plane * train.std(0) + train.mean(0)
