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

from csgmcmc.arguments import shown
from csgmcmc.errors import SettingsMismatchError
from csgmcmc.loaders import quietly
from csgmcmc.loop.fingerprint import REMEDY
from csgmcmc.randomness import Generator, preserved_random_state, seeded

READINGS = 4
NUMBERS, MANY = 16, 1000  # of each tensor of an example, and for its root mean square
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
    data: Any = getattr(loader, "dataset", loader)
    is_list = data is loader and isinstance(data, (list, tuple))
    if getattr(loader, "num_workers", 0) or (data is loader and not is_list):
        return Examples()
    readings: list[list[Any]] = []
    with suppress(Exception), preserved_random_state(generators):  # a data set may do anything
        for seed in range(READINGS):
            with seeded(seed):
                readings.append([data[index] for index in (0, len(data) // 2, len(data) - 1)])
        leaves = [map(_numbers, pytree.tree_leaves(reading)) for reading in readings]
        every = zip(*leaves, strict=True)
        values = [one if all(one == x for x in more) else None for one, *more in every]
        if None in values:
            return Examples(values)
        whole = is_list or getattr(loader, "batch_sampler", None) is None
        batch = readings[0][0] if whole else readings[0]
        return Examples(values, batch if is_list else loader.collate_fn(batch))
    return Examples()


def check_same_examples(saved: list[Any] | None, current: list[Any] | None) -> None:
    """Raise `SettingsMismatchError` if examples differ; None is not compared."""
    for before, now in zip(saved or (), current or (), strict=False):
        if not _same(before, now):
            raise SettingsMismatchError(
                f"cannot resume: the data have changed: an example had {shown(before)} when the "
                f"checkpoint was made, and has {shown(now)} now: {REMEDY}; a random split needs a "
                "seed"
            )


def _same(before: Any, now: Any) -> bool:
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return bool(np.abs(np.subtract(before, now)).max() <= TOLERANCE * before[-1])
    return before == now or before is None or now is None


def _numbers(leaf: Any) -> Any:
    """Some numbers of a tensor, and their root mean square; a text or the kind of anything else."""
    if not isinstance(leaf, (torch.Tensor, np.ndarray, np.generic, int, float)):
        return leaf[:NUMBERS] if isinstance(leaf, str) else type(leaf).__name__
    found = torch.as_tensor(leaf).detach().flatten()
    found = found[np.linspace(0, len(found) - 1, min(MANY, len(found))).astype(int)].cpu().double()
    found, some = found.nan_to_num(), slice(None, None, max(1, len(found) // NUMBERS))
    return [float(f"{x:.4g}") for x in (*found[some], found.square().mean().sqrt().nan_to_num())]


def steady_loss(model: nn.Module, evaluate: Callable[[], torch.Tensor]) -> float | None:
    """The mean of `evaluate()`, a loss of `model`; None if it is random, or cannot be evaluated."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    found = list[float]()
    eager: Any = torch.compiler.set_stance("force_eager")  # no compilation for this batch
    with suppress(Exception), quietly(model), eager:  # a loss may do anything
        for seed in range(2):
            with seeded(seed):
                found.append(evaluate().float().mean().item())
    with torch.no_grad():
        for name, value in model.named_buffers():
            value.copy_(buffers.get(name, value))
    same = len(found) == 2 and math.isclose(*found, **SAME_LOSS)
    return found[0] if same and math.isfinite(found[0]) else None


def check_same_loss(saved: float | None, current: float | None) -> None:
    """Raise `SettingsMismatchError` if the loss of the same examples and weights differs."""
    if saved is not None and current is not None and not math.isclose(saved, current, **SAME_LOSS):
        raise SettingsMismatchError(
            f"cannot resume: at the same weights the loss of some examples was {saved:.4g} when "
            f"the checkpoint was made, and is {current:.4g} now, by another model or loss: {REMEDY}"
        )
