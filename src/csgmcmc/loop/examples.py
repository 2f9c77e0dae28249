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

from csgmcmc.errors import SettingsMismatchError
from csgmcmc.loaders import quietly
from csgmcmc.loop.fingerprint import REMEDY
from csgmcmc.randomness import Generator, preserved_random_state, seeded

READINGS = 4
NUMBERS = 16  # of each tensor of an example
TOLERANCE = 1e-3  # relative to the root mean square
SAME_LOSS = {"rel_tol": 0.02, "abs_tol": 0.01}  # other devices round differently


class Examples(NamedTuple):
    """The first, middle and last example of a data set."""

    values: dict[str, list[Any]] | None = None
    """By index: for each tensor some of its numbers, and last their root mean square; None for one
    that differs from one reading to the next."""
    batch: Any = None  # of these examples; None if one of them is not always the same


def read_examples(loader: Any, generators: Sequence[Generator] = ()) -> Examples:
    """Read examples of a loader's data set, or the first of a list of batches.

    Nothing is read of other loaders, nor if there are worker processes: a data set may then expect
    that files are opened only there. Random states are restored.
    """
    data = getattr(loader, "dataset", loader if isinstance(loader, (list, tuple)) else None)
    if data is None or getattr(loader, "num_workers", 0):
        return Examples()
    with suppress(Exception), preserved_random_state(generators):  # a data set may do anything
        indices = [0] if data is loader else sorted({0, len(data) // 2, len(data) - 1})
        readings = []
        for seed in range(READINGS):
            with seeded(seed):
                readings.append([data[index] for index in indices])
        values = {
            str(index): [
                _numbers(leaf) if all(_numbers(leaf) == _numbers(each) for each in others) else None
                for leaf, *others in zip(*map(pytree.tree_leaves, read), strict=True)
            ]
            for index, *read in zip(indices, *readings, strict=True)
        }
        if any(leaf is None for leaves in values.values() for leaf in leaves):
            return Examples(values)
        batch = readings[0][0]
        if data is not loader:
            is_batched = getattr(loader, "batch_sampler", None) is not None
            batch = loader.collate_fn(readings[0] if is_batched else batch)
        return Examples(values, batch)
    return Examples()


def check_same_examples(
    saved: dict[str, list[Any]] | None, current: dict[str, list[Any]] | None
) -> None:
    """Raise `SettingsMismatchError` if examples differ; None is not compared."""
    for index, leaves in (saved or {}).items():
        for before, now in zip(leaves, (current or {}).get(index, ()), strict=False):
            if before is None or now is None or before == now:
                continue
            if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
                off = np.abs(np.subtract(before, now))
                if off.max() <= TOLERANCE * abs(before[-1]):
                    continue
                was, found = (f"{values[int(off.argmax())]:.4g}" for values in (before, now))
            else:
                was, found = before, now
            raise SettingsMismatchError(
                f"cannot resume: the data have changed: example {index} has {found} where it had "
                f"{was} when the checkpoint was made (a random split needs a seed): {REMEDY}"
            )


def steady_loss(model: nn.Module, evaluate: Callable[[], torch.Tensor]) -> float | None:
    """The mean of `evaluate()`, a loss of `model`; None if it is random, or cannot be evaluated."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    found = list[float]()
    with suppress(Exception), quietly(model):  # a loss may do anything
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
            f"cannot resume: the loss of some examples at the same weights was {saved:.4g} when "
            f"the checkpoint was made, and is {current:.4g} now: model or loss compute something "
            f"else: {REMEDY}"
        )


def _numbers(leaf: Any) -> Any:
    """Some numbers of a tensor, and their root mean square; a text or the kind of anything else."""
    if isinstance(leaf, str):
        return leaf[:NUMBERS]
    if not isinstance(leaf, (torch.Tensor, np.ndarray, np.generic, int, float)):
        return type(leaf).__name__
    found = torch.as_tensor(leaf).detach().double().flatten().nan_to_num()
    some = found[np.linspace(0, len(found) - 1, min(NUMBERS, len(found))).astype(int)]
    return [*some.tolist(), found.square().mean().sqrt().nan_to_num().item()]
