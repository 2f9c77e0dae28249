"""Parameters that are sharded over processes (DTensors), and those that are not, in one way."""

from collections.abc import Iterable

from torch import Tensor, nn


def local_shard(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds: all of it, unless it is a DTensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # pyright: ignore[reportAttributeAccessIssue]


def whole_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor. Of a DTensor it is gathered, so that all processes must call this."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # pyright: ignore[reportAttributeAccessIssue]


def is_sharded(model: nn.Module) -> bool:
    """Whether a parameter of `model` is a DTensor."""
    return any(hasattr(param, "placements") for param in model.parameters())


def check_not_flattened(params: Iterable[Tensor]) -> None:
    """Raise a `ValueError` for parameters of FSDP1, whose positions in the model are unknown.

    Each process holds a part of one flat tensor there, and all parts would get the same noise.
    """
    if any(getattr(param, "_fsdp_flattened", False) for param in params):
        raise ValueError(
            "params are flattened by FullyShardedDataParallel (FSDP1), whose shards would share "
            "their noise: shard the model with torch.distributed.fsdp.fully_shard (FSDP2)"
        )
