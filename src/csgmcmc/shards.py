"""One interface to parameters that are sharded over processes (DTensors) and to those that are not.

In all functions here, a mesh of None stands for a single process.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor, nn

from csgmcmc.errors import StoreError

T = TypeVar("T")
Named = Iterator[tuple[str, Tensor]]
"""Whole tensors with their names, one at a time."""


def is_shard(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor, of which each process may hold another part."""
    return hasattr(tensor, "placements")


def is_sharded(model: nn.Module) -> bool:
    """Whether a parameter of `model` is a DTensor."""
    return any(map(is_shard, model.parameters()))


def local_shard(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: all of it, unless it is a DTensor."""
    return tensor.to_local() if is_shard(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def whole_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor. A DTensor is gathered, so that all its processes must call this."""
    return tensor.full_tensor() if is_shard(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def local_slices(tensor: Tensor) -> tuple[slice, ...]:
    """The index, in the whole tensor, of the part that this process holds."""
    if not is_shard(tensor):
        return (slice(None),) * tensor.ndim
    return slices_of_shard(tuple(tensor.shape), tensor.device_mesh, tensor.placements)  # pyright: ignore[reportAttributeAccessIssue]


def slices_of_shard(
    shape: tuple[int, ...], mesh: Any, placements: tuple[Any, ...]
) -> tuple[slice, ...]:
    """The index of the local tensor of a DTensor in the whole one."""
    slices = [slice(0, size) for size in shape]
    # FSDP shards what tensor parallelism has sharded before it: such a placement, which has a
    # split_factor, comes last, although its mesh dimension comes first.
    order = sorted(range(mesh.ndim), key=lambda i: hasattr(placements[i], "split_factor"))
    for i in order:
        dim = getattr(placements[i], "dim", None)
        if dim is not None:  # a shard; other placements hold all
            begin, end = slices[dim].start, slices[dim].stop
            length = -(-(end - begin) // mesh.size(i))  # as torch.chunk: the last may be empty
            begin = min(begin + mesh.get_local_rank(i) * length, end)
            slices[dim] = slice(begin, min(begin + length, end))
    return tuple(slices)


def mesh_of(tensors: Iterable[Tensor]) -> Any | None:
    """The mesh of all processes that hold a part of the tensors; None if none is a DTensor."""
    meshes: list[Any] = [tensor.device_mesh for tensor in tensors if is_shard(tensor)]  # pyright: ignore[reportAttributeAccessIssue]
    # With tensor parallelism, a parameter that it does not shard is on a smaller mesh than others.
    return max(meshes, key=lambda mesh: mesh.size(), default=None)


def is_first(mesh: Any | None) -> bool:
    """Whether this process is the first of a mesh, which writes the files of all."""
    return mesh is None or not any(mesh.get_local_rank(dim) for dim in range(mesh.ndim))


def do_together(mesh: Any | None, action: Callable[[], T]) -> list[T]:
    """Call `action` in each process of a mesh and wait for all; returns their results.

    If it fails in one process, all of them raise: none waits for a process that has given up.
    """
    if mesh is None:
        return [action()]
    own: Exception | None = None
    answers: list[Any] = []
    try:
        answers = [(action(), None)]
    except Exception as error:  # raised below, once the others know
        own, answers = error, [(None, f"{error}")]
    for dim in reversed(range(mesh.ndim)):  # row by row
        parts: list[Any] = [None] * mesh.size(dim)
        dist.all_gather_object(parts, answers, group=mesh.get_group(dim))
        answers = [each for part in parts for each in part]
    if own is not None:
        raise own
    for number, (_, failure) in enumerate(answers):
        if failure is not None:
            raise StoreError(f"process {number} of those that hold the model failed: {failure}")
    return [each for each, _ in answers]


def do_first(mesh: Any | None, action: Callable[[], T]) -> T:
    """The result of `action` in the first process of a mesh; all of them must call this."""
    return do_together(mesh, lambda: action() if is_first(mesh) else None)[0]  # pyright: ignore[reportReturnType]


def gather_to_first(
    mesh: Any | None, tensors: Mapping[str, Tensor], consume: Callable[[Named], T]
) -> T:
    """Gather tensors one at a time, by name; the first process gives each to `consume`.

    All processes of the mesh call this, and get what `consume` returns. Tensors that are not
    sharded are those of the first process.
    """
    whole = ((name, whole_tensor(tensors[name])) for name in sorted(tensors))

    def take_part() -> Any:
        try:
            return consume(whole) if is_first(mesh) else None
        finally:
            if mesh is not None:  # after an error too: the others wait in the next gather
                deque(whole, maxlen=0)

    return do_together(mesh, take_part)[0]


def check_not_flattened(params: Iterable[Tensor]) -> None:
    """Raise a `ValueError` for parameters of FSDP1, whose positions in the model are unknown."""
    if any(getattr(param, "_fsdp_flattened", False) for param in params):
        raise ValueError(
            "params are flattened by FullyShardedDataParallel (FSDP1), whose shards would share "
            "their noise: shard the model with torch.distributed.fsdp.fully_shard (FSDP2)"
        )
