"""Handwritten digits of 8x8 pixels, which come with scikit-learn: no download."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.data import TensorDataset

TRAIN, VALIDATION = 1000, 300


class Digits(NamedTuple):
    """1000 digits to train on, 300 to choose settings by, 497 to test with."""

    train: TensorDataset
    validation: TensorDataset
    test: TensorDataset


def digits() -> Digits:
    """Images of shape (1, 8, 8) with values from 0 to 1, and labels; always the same split."""
    from sklearn.datasets import load_digits  # noqa: PLC0415  (takes a second to import)

    pixels, labels = load_digits(return_X_y=True)
    images = torch.as_tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    # The data set is ordered by writer: shuffled, so that all parts have all of them.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return Digits(*_parts(images[order], torch.as_tensor(labels)[order]))


def _parts(images: Tensor, labels: Tensor) -> list[TensorDataset]:
    sizes = [TRAIN, VALIDATION, len(images) - TRAIN - VALIDATION]
    pairs = zip(images.split(sizes), labels.split(sizes), strict=True)
    return [TensorDataset(*pair) for pair in pairs]
