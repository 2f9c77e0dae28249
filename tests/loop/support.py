"""A small run with everything that has a random state, used in and out of process."""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from csgmcmc import SGHMC, Chain, Cyclical, DrawStore

STEPS = 120


class Noisy(Dataset):
    """Examples with random augmentation, as a transform of torch's global generator would do."""

    def __init__(self, size: int = 40) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(size, 6, generator=generator)
        self.labels = (self.inputs[:, 0] > 0).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        return self.inputs[index] + 0.1 * torch.randn(6), self.labels[index]


def make_chain(
    path: Path | str,
    *,
    loader=None,
    steps: int = STEPS,
    draws=None,
    schedule=None,
    kind: Any = SGHMC,
    **options,
) -> Chain:
    """The same run every time: model, shuffling, augmentation and dropout from one seed."""
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    model = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2)
    )
    loader = DataLoader(Noisy(), batch_size=8, shuffle=True) if loader is None else loader
    own: dict[str, Any] = {"momentum": 0.8} if kind is SGHMC else {}
    sampler = kind(model.parameters(), lr=0.1, num_data=40, seed=3, **own)
    schedule = schedule or Cyclical(steps, cycles=3, exploration=0.5, draws_per_cycle=4)
    options = {"checkpoint_every": 7, "progress": False, **options}
    draws = DrawStore(path) if draws is None else draws
    return Chain(model, nn.functional.cross_entropy, loader, sampler, schedule, draws, **options)


def told_and_slowed(seconds: float):
    """Say that the first step is done, and take some time for each."""

    def call(moment) -> None:
        print("step", moment.tick.step, flush=True)  # noqa: T201
        time.sleep(seconds)

    return call


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_chain(sys.argv[1], callbacks=told_and_slowed(float(sys.argv[2]))).run(resume=True)
