"""What a loader gives: inputs, with or without targets."""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.utils import _pytree as pytree

GROUP_BYTES = 64 * 2**20  # of inputs that are held at once


def split(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch, as `Chain` reads it; targets are None where there are none."""
    if isinstance(batch, (tuple, list)):
        if len(batch) == 2:
            return batch[0], batch[1]
        if len(batch) == 1:
            return batch[0], None
    return batch, None


def groups(loader: Iterable[Any]) -> Iterator[list[tuple[Any, Any]]]:
    """The batches of one pass over `loader`, some at a time.

    Every draw is loaded once for each group, and the loader is read only once, so that a loader
    that shuffles gives every draw the same inputs.
    """
    group: list[tuple[Any, Any]] = []
    size = 0
    for batch in loader:
        group.append(split(batch))
        size += bytes_of(group[-1][0])
        if size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def tensors_of_tree(tree: Any) -> list[Tensor]:
    """All tensors inside tuples, lists and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def bytes_of(tree: Any) -> int:
    """Bytes of all tensors inside."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of_tree(tree))
