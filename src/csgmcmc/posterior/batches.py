"""Batches of a loader: inputs, with or without targets."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from csgmcmc.arguments import shown
from csgmcmc.batches import is_pair
from csgmcmc.loaders import check_data, to_device
from csgmcmc.posterior.sharing import ALONE, Share
from csgmcmc.progress import Bar

Batch = tuple[Any, Any]
"""Inputs and targets; targets are None if there are none."""

Split = Callable[[Any], Batch]
"""From a batch of a loader to its inputs and targets."""

NOT_OWN = object()
"""The inputs of a batch that another process evaluates."""

GROUP_BYTES = 64 * 2**20  # of inputs in memory at a time


def plain_split(batch: Any) -> Batch:
    """Default split: a pair is inputs and targets, any other batch has no targets."""
    if is_pair(batch):
        return batch[0], batch[1]
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return batch[0], None
    return batch, None


def groups(
    loader: Iterable[Any], split: Split = plain_split, share: Share = ALONE
) -> Iterator[list[Batch]]:
    """The batches of one pass over `loader`, some at a time; raises if there are none.

    Every draw is loaded once for each group. The loader is read only once, so that a loader that
    shuffles gives every draw the same inputs. The inputs of a batch that is another process's share
    are `NOT_OWN`.
    """
    check_data(loader, "loader")
    group: list[Batch] = []
    size, empty = 0, True
    for number, batch in enumerate(loader):
        empty = False
        found = split(batch)
        if not is_pair(found):
            raise ValueError(f"split must return inputs and targets, got {shown(found)}")
        share.look_at(found)
        group.append((found[0] if share.has_batch(number) else NOT_OWN, found[1]))
        size += bytes_of(found[0])
        parts = share.parts_of_data  # each process has about as much, and something to do
        if size >= GROUP_BYTES * parts and len(group) >= parts:
            yield group
            group, size = [], 0
    if group:
        yield group
    if empty:
        raise ValueError("loader gave no batches")


def targets_of(group: Sequence[Batch], device: torch.device) -> list[Tensor]:
    """The targets of each batch, which must be tensors."""
    if not all(isinstance(targets, Tensor) for _, targets in group):
        raise ValueError(
            "loader must give pairs of inputs and targets, the targets a tensor: of one batch, "
            "give [(inputs, targets)]; of others, give the posterior a split= function"
        )
    return [to_device(targets, device) for _, targets in group]


def bar_over(
    loader: Iterable[Any], draws: int, title: str, *, shown: bool, share: Share = ALONE
) -> Bar:
    """A progress bar for `draws` evaluations of each own batch, which appears after a second."""
    total = None
    with suppress(TypeError):  # some loaders have no length
        own = -(-len(loader) // share.parts_of_data)  # pyright: ignore[reportArgumentType]
        total = own * draws
    return Bar(title, total, shown=shown, patience=1.0, transient=True)


def tensors_of_tree(tree: Any) -> list[Tensor]:
    """All tensors inside tuples, lists and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def bytes_of(tree: Any) -> int:
    """Bytes of all tensors inside."""
    if isinstance(tree, Tensor):
        return tree.numel() * tree.element_size()  # a sparse one has no `nbytes`
    return sum(map(bytes_of, tensors_of_tree(tree)))
