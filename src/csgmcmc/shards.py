"""Parameters that are sharded over processes (DTensors), and those that are not, in one way."""

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
