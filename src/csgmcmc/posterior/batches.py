"""Batches of a loader: inputs, with or without targets."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from csgmcmc.batches import is_pair
from csgmcmc.loaders import to_device
from csgmcmc.progress import Bar

Batch = tuple[Any, Any]
"""Inputs and targets; targets are None if there are none."""

GROUP_BYTES = 64 * 2**20  # of inputs in memory at a time


def split(batch: Any) -> Batch:
    """Inputs and targets of a batch; targets are None if there are none."""
    if is_pair(batch):
        return batch[0], batch[1]
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return batch[0], None
    return batch, None


def groups(loader: Iterable[Any]) -> Iterator[list[Batch]]:
    """The batches of one pass over `loader`, some at a time; raises if there are none.

    Every draw is loaded once for each group. The loader is read only once, so that a loader that
    shuffles gives every draw the same inputs.
    """
    group: list[Batch] = []
    size, empty = 0, True
    for batch in loader:
        empty = False
        group.append(split(batch))
        size += bytes_of(group[-1][0])
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
    if empty:
        raise ValueError("loader gave no batches")


def targets_of(group: Sequence[Batch], device: torch.device) -> list[Tensor]:
    """The targets of each batch, which must be tensors."""
    if not all(isinstance(targets, Tensor) for _, targets in group):
        raise ValueError("loader must give pairs of inputs and targets, the targets a tensor")
    return [to_device(targets, device) for _, targets in group]


def bar_over(loader: Iterable[Any], draws: int, title: str, *, shown: bool) -> Bar:
    """A progress bar for `draws` evaluations of each batch, which appears after a second."""
    total = None
    with suppress(TypeError):  # some loaders have no length
        total = len(loader) * draws  # pyright: ignore[reportArgumentType]
    return Bar(title, total, shown=shown, patience=1.0, transient=True)


def tensors_of_tree(tree: Any) -> list[Tensor]:
    """All tensors inside tuples, lists and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def bytes_of(tree: Any) -> int:
    """Bytes of all tensors inside."""
    return tree.nbytes if isinstance(tree, Tensor) else sum(map(bytes_of, tensors_of_tree(tree)))
