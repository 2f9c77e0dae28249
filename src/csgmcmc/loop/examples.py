"""A few examples of the data, by which a resumed run notices that data, model or loss have changed.

They are read by their index, so that shuffling, devices and threads do not matter, and compared
with a tolerance. What differs from one reading to the next, as with augmentation, is not compared.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from csgmcmc.arguments import shown
from csgmcmc.loaders import quietly
from csgmcmc.loop.fingerprint import mismatch
from csgmcmc.randomness import Generator, preserved_random_state, seeded

NUMBERS = 16  # of each tensor of an example, besides its root mean square
TOLERANCE = 1e-3  # relative to the root mean square
SAME_LOSS = {"rel_tol": 0.02, "abs_tol": 0.01}  # other devices round differently


class Examples(NamedTuple):
    """The first, middle and last example of a data set, or of a list of batches."""

    values: list[Any] | None = None  # of each tensor; None for one that is random
    batch: Any = None  # None if they are random


def read_examples(loader: Any, generators: Sequence[Generator] = ()) -> Examples:
    """Read examples, without a change of random states; nothing where that may not be possible.

    With worker processes, a data set may expect that its files are opened only there.
    """
    is_list = isinstance(loader, (list, tuple))
    if not is_list and not (isinstance(loader, DataLoader) and loader.num_workers == 0):
        return Examples()
    data: Any = loader if is_list else loader.dataset
    with suppress(Exception), preserved_random_state(generators):  # a data set may do anything
        readings: list[list[Any]] = []
        for seed in range(2):
            with seeded(seed):
                readings.append([data[index] for index in (0, len(data) // 2, len(data) - 1)])
        one, other = ([_values(example) for example in reading] for reading in readings)
        # A tensor is random if it is in any of the examples: a flip is seen in half of them.
        columns = zip(zip(*one, strict=True), zip(*other, strict=True), strict=True)
        steady = [column if column == again else (None,) * 3 for column, again in columns]
        values = [value for row in zip(*steady, strict=True) for value in row]
        if None in values:
            return Examples(values)
        batch = readings[0][0] if is_list or loader.batch_sampler is None else readings[0]
        return Examples(values, batch if is_list else loader.collate_fn(batch))
    return Examples()


def _values(example: Any) -> list[Any]:
    """Of each tensor some numbers and the root mean square; of others the text or the type."""
    values: list[Any] = []
    for leaf in pytree.tree_leaves(example):
        if isinstance(leaf, (torch.Tensor, np.ndarray, np.generic, int, float)):
            numbers = torch.as_tensor(leaf).detach().flatten().cpu().double().nan_to_num()
            some = numbers[:: max(1, len(numbers) // NUMBERS)]
            size = numbers.square().mean().sqrt().nan_to_num()
            values.append([float(f"{number:.4g}") for number in (*some, size)])
        else:
            values.append(leaf[:NUMBERS] if isinstance(leaf, str) else type(leaf).__name__)
    return values


def check_same_examples(saved: list[Any] | None, current: list[Any] | None) -> None:
    """Raise `SettingsMismatchError` if examples differ; None is not compared."""
    for before, now in zip(saved or (), current or (), strict=False):
        same = before == now or before is None or now is None
        if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
            same = np.allclose(before, now, rtol=0, atol=TOLERANCE * before[-1])
        if not same:
            more = "; a random split needs a seed"
            raise mismatch("the data have changed: an example", shown(before), shown(now), more)


def steady_loss(model: nn.Module, evaluate: Callable[[], torch.Tensor]) -> float | None:
    """The mean of `evaluate()`, a loss of `model`; None if it is random, or cannot be evaluated."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    found = [math.nan, math.nan]
    eager: Any = torch.compiler.set_stance("force_eager")  # no compilation for this batch
    with suppress(Exception), quietly(model), eager:  # a loss may do anything
        for seed in range(2):
            with seeded(seed):
                found[seed] = evaluate().float().mean().item()
    with torch.no_grad():
        for name, value in model.named_buffers():
            value.copy_(buffers.get(name, value))
    return found[0] if math.isfinite(found[0]) and math.isclose(*found, **SAME_LOSS) else None


def check_same_loss(saved: float | None, current: float | None) -> None:
    """Raise `SettingsMismatchError` if the loss of the same examples and weights differs."""
    if saved is not None and current is not None and not math.isclose(saved, current, **SAME_LOSS):
        what = "model or loss have changed: the loss of some examples at the same weights"
        raise mismatch(what, f"{saved:.4g}", f"{current:.4g}")
