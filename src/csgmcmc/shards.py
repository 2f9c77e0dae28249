"""Parameters that are sharded over processes (DTensors), and those that are not, in one way."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import torch.distributed as dist
from torch import Tensor, nn

from csgmcmc.errors import StoreError

T = TypeVar("T")


class Box(NamedTuple):
    """A part of a tensor: where it begins along each dimension, and its shape."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def slices(self) -> tuple[slice, ...]:
        """The index of the part in the whole tensor."""
        pairs = zip(self.offsets, self.shape, strict=True)
        return tuple(slice(offset, offset + size) for offset, size in pairs)

    @property
    def size(self) -> int:
        """How many numbers the part has."""
        return math.prod(self.shape)

    def common_with(self, other: "Box") -> "Box":
        """The part that both have, in the whole tensor; its size is 0 if there is none."""
        starts = tuple(map(max, self.offsets, other.offsets))
        ends = [min(one.stop, two.stop) for one, two in zip(self.slices, other.slices, strict=True)]
        return Box(starts, tuple(max(0, e - s) for s, e in zip(starts, ends, strict=True)))

    def seen_from(self, other: "Box") -> tuple[slice, ...]:
        """The index of this part in the tensor that holds `other`."""
        offsets = tuple(a - b for a, b in zip(self.offsets, other.offsets, strict=True))
        return Box(offsets, self.shape).slices


def is_shard(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor, of which each process may hold another part."""
    return hasattr(tensor, "placements")


def local_shard(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: all of it, unless it is a DTensor."""
    return tensor.to_local() if is_shard(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def whole_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor. Of a DTensor it is gathered, so that all processes must call this."""
    return tensor.full_tensor() if is_shard(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def is_sharded(model: nn.Module) -> bool:
    """Whether a parameter of `model` is a DTensor."""
    return any(map(is_shard, model.parameters()))


def whole_box(shape: Iterable[int]) -> Box:
    """All of a tensor of this shape."""
    shape = tuple(shape)
    return Box((0,) * len(shape), shape)


def box_of(tensor: Tensor) -> Box:
    """Which part of a tensor this process holds: all of it, unless it is a DTensor."""
    if not is_shard(tensor):
        return whole_box(tensor.shape)
    sharded: Any = tensor
    return box_of_shard(tuple(tensor.shape), sharded.device_mesh, sharded.placements)


def box_of_shard(shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]) -> Box:
    """The part that the local tensor of a DTensor is."""
    offsets, sizes = [0] * len(shape), list(shape)
    # FSDP shards what tensor parallelism has sharded before it: such a placement, which has a
    # split_factor, comes last, although its mesh dimension comes first.
    order = sorted(range(mesh.ndim), key=lambda i: hasattr(placements[i], "split_factor"))
    for i in order:
        if hasattr(placements[i], "dim"):  # a shard; other placements hold all
            dim = placements[i].dim
            begin, end = _chunk(sizes[dim], mesh.size(i), mesh.get_local_rank(i))
            offsets[dim] += begin
            sizes[dim] = end - begin
    return Box(tuple(offsets), tuple(sizes))


def _chunk(size: int, chunks: int, index: int) -> tuple[int, int]:
    """Begin and end of a part of `torch.chunk`, as shards are: the last may be short or empty."""
    length = -(-size // chunks)
    return min(index * length, size), min((index + 1) * length, size)


def mesh_of(tensors: Iterable[Tensor]) -> Any | None:
    """The mesh of all processes that hold a part of the tensors; None if none is a DTensor."""
    sharded: list[Any] = [tensor for tensor in tensors if is_shard(tensor)]
    meshes = [tensor.device_mesh for tensor in sharded]
    # With tensor parallelism, a parameter that it leaves alone is on a smaller mesh than others.
    return max(meshes, key=lambda mesh: mesh.size(), default=None)


def number_in(mesh: Any) -> int:
    """Number of this process in a mesh, row by row; the first one is 0."""
    number = 0
    for dim in range(mesh.ndim):
        number = number * mesh.size(dim) + mesh.get_local_rank(dim)
    return number


def gather_over(mesh: Any, value: T) -> list[T]:
    """The `value` of each process of a mesh, by their numbers. All of them must call this."""
    values: list[Any] = [value]
    for dim in reversed(range(mesh.ndim)):
        parts: list[Any] = [None] * mesh.size(dim)
        dist.all_gather_object(parts, values, group=mesh.get_group(dim))
        values = [each for part in parts for each in part]
    return values


def do_together(mesh: Any, action: Callable[[], T]) -> list[T]:
    """Do something in each process of a mesh, and wait for all; returns what each has found.

    Where it fails in one process, all raise: none waits for another that has given up.
    """
    own: Exception | None = None
    found: Any = None
    try:
        found = action()
    except Exception as error:  # raised below, once the others know
        own = error
    said = gather_over(mesh, (found, None if own is None else f"{own}"))
    if own is not None:
        raise own
    for number, (_, failure) in enumerate(said):
        if failure is not None:
            raise StoreError(f"process {number} of those that hold the model failed: {failure}")
    return [each for each, _ in said]


def check_not_flattened(params: Iterable[Tensor]) -> None:
    """Raise a `ValueError` for parameters of FSDP1, whose positions in the model are unknown.

    Each process holds a part of one flat tensor there, and all parts would get the same noise.
    """
    if any(getattr(param, "_fsdp_flattened", False) for param in params):
        raise ValueError(
            "params are flattened by FullyShardedDataParallel (FSDP1), whose shards would share "
            "their noise: shard the model with torch.distributed.fsdp.fully_shard (FSDP2)"
        )
