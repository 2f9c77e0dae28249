"""A pass over data that several processes share: each does a part, and all get the whole.

Processes go round by round. In each, every process says what it has found, that it has reached the
end, or that it has failed: so none waits for another that has given up.
"""

import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from csgmcmc.arguments import check_choice
from csgmcmc.errors import ProcessError

T = TypeVar("T")

CHOICES = ("draws", "data")
PLAIN = (str, bytes, int, float, complex, np.generic)


class Share:
    """The part of one pass over a loader that this process does.

    Args:
        by: what is divided: "draws", "data", or nothing.
        rank: number of this process.
        processes: how many there are.
        key: a number that must be the same in all processes: of their draws, weights and arguments.
    """

    def __init__(
        self, by: str | None = None, rank: int = 0, processes: int = 1, key: int = 0
    ) -> None:
        self.by, self.rank, self.processes, self._key = by, rank, processes, key
        self._seen = 0  # a checksum of all batches so far
        self.parts_of_data = processes if by == "data" else 1
        """Among how many processes the batches are divided."""

    def draws(self, numbers: Sequence[int]) -> list[int]:
        """Those of some draws that this process evaluates: some that follow each other."""
        if self.by != "draws":
            return list(numbers)
        ends = [len(numbers) * rank // self.processes for rank in (self.rank, self.rank + 1)]
        return list(numbers[slice(*ends)])

    def has_batch(self, number: int) -> bool:
        """Whether this process evaluates the batch with this number."""
        return self.by != "data" or number % self.processes == self.rank

    def look_at(self, batch: Any) -> None:
        """Called with all that is read, in its order: all processes must read the same."""
        if self.processes > 1:
            self._seen = _checksum(batch, self._seen)

    def rounds(
        self, items: Generator[T, None, None], told: Callable[[T], Any]
    ) -> Iterator[tuple[T, list[Any]]]:
        """Each item of this process, and what every process, in their order, tells of its own.

        All must have as many items. With one process nothing is told.
        """
        if self.processes == 1:
            for item in items:
                yield item, []
            return
        while True:
            own: Exception | None = None
            item: Any = None
            found: Any = None
            try:
                item = next(items, None)
                found = None if item is None else (self._key, self._seen, _on_cpu(told(item)))
            except Exception as error:  # raised below, once the others know
                own = error
            failure = None if own is None else f"{type(own).__name__}: {own}"
            everyone: list[Any] = [None] * self.processes
            dist.all_gather_object(everyone, (found, failure))
            if own is not None:
                raise own
            for number, (_, words) in enumerate(everyone):
                if words is not None:
                    raise ProcessError(f"process {number} failed: {words}")
            if all(each is None for each, _ in everyone):
                return
            _check_alike([each for each, _ in everyone])
            yield cast(T, item), [each[2] for each, _ in everyone]


ALONE = Share()
"""One process that does everything."""


def share_of(share: str | None, key: int = 0) -> Share:
    """The share of this process in a pass, as the user has asked for it.

    Without a process group of several processes it is everything.
    """
    if share is not None:
        check_choice("share", share, CHOICES)
    if share is None or not dist.is_initialized() or dist.get_world_size() == 1:
        return Share()
    return Share(share, dist.get_rank(), dist.get_world_size(), key)


def _check_alike(everyone: list[tuple[int, int, Any] | None]) -> None:
    """Raise a `ValueError` if processes have other draws or other data than the first one."""
    remedy = "give every process the same data in the same order, without shuffling"
    if any(each is None for each in everyone):
        raise ValueError(f"loader has fewer batches in some processes than in others: {remedy}")
    keys, seen, _ = zip(*[each for each in everyone if each is not None], strict=True)
    if len(set(keys)) > 1:
        raise ValueError(
            "draws, weights or the arguments share and members differ between processes: give all "
            "the same, and open the store in all of them after all chains have ended, for example "
            "after torch.distributed.barrier()"
        )
    if len(set(seen)) > 1:
        raise ValueError(f"loader gives other batches in some processes than in others: {remedy}")


def _checksum(batch: Any, start: int) -> int:
    """Goes on from the checksum of what was before.

    Objects that are neither numbers nor text, and no container of such, are left out: how they
    are written may differ between processes though they are alike.
    """
    for leaf in pytree.tree_leaves(batch):
        if isinstance(leaf, Mapping):  # of another kind than dict, as tokenizers return
            start = _checksum([part for pair in leaf.items() for part in pair], start)
        elif is_dataclass(leaf):
            start = _checksum([getattr(leaf, each.name, None) for each in fields(leaf)], start)
        elif isinstance(leaf, (Tensor, np.ndarray)):
            start = zlib.crc32(repr((tuple(leaf.shape), leaf.dtype)).encode(), start)
            start = zlib.crc32(_bytes_of(leaf), start)
        elif isinstance(leaf, PLAIN):
            start = zlib.crc32(repr(leaf).encode(), start)
    return start


def _bytes_of(numbers: Tensor | NDArray[Any]) -> Any:
    if isinstance(numbers, Tensor):
        if numbers.layout is not torch.strided:
            return b""
        return numbers.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    if numbers.dtype.hasobject:
        return repr(numbers.tolist()).encode()
    return np.ascontiguousarray(numbers).view(np.uint8)


def _on_cpu(tree: Any) -> Any:
    """Tensors that can be sent: on the CPU, and no view of a larger one, which would be sent."""

    def sent(tensor: Tensor) -> Tensor:
        tensor = tensor.cpu()
        larger = tensor.untyped_storage().nbytes() > tensor.nbytes
        return tensor.clone() if larger or tensor.is_inference() else tensor

    return pytree.tree_map_only(Tensor, sent, tree)


def on_device(tree: Any, device: torch.device) -> Any:
    """What was sent, on the device of this process."""
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), tree)
