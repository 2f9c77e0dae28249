"""Data loaders: their sizes, a description to compare, and batches on a device."""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, DistributedSampler, IterableDataset, SubsetRandomSampler

from csgmcmc.arguments import shown


def check_data(data: Any, name: str = "data") -> None:
    """Raise a `ValueError` if this does not give batches."""
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise ValueError(
            f"{name} is a {type(data).__name__}, a data set, which gives one example at a time: "
            f"give a loader of it, as in DataLoader({name}, batch_size=64)"
        )
    is_iterable = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if not is_iterable or isinstance(data, (str, bytes)):
        raise ValueError(f"{name} must be a DataLoader, or a list of batches, got {shown(data)}")


def describe_loader(loader: Any) -> dict[str, Any]:
    """Settings that determine the batches and their order, as far as the loader has them.

    They are the same for any number of processes that share batches.
    """
    sampler = getattr(loader, "sampler", None)
    found = {
        "loader": type(loader).__name__,
        "sampler": type(sampler).__name__,
        "num_workers": getattr(loader, "num_workers", None),
        "batches": _length(loader),
        "batch_size": getattr(loader, "batch_size", None),
        "examples": _length(getattr(loader, "dataset", None)),
    }
    if isinstance(sampler, DistributedSampler):
        found["examples_in_an_epoch"] = sampler.total_size
        if found["batch_size"] is not None:
            found["batch_size"] *= sampler.num_replicas
    return found


def size_of(loader: Any) -> int:
    """N of a loader: the length of its data set, or of the subset that an epoch goes through."""
    sampler = getattr(loader, "sampler", None)
    try:
        size = len(loader.dataset)
        seen = size if sampler is None or isinstance(sampler, DistributedSampler) else len(sampler)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            "the size of the data set is not known: give num_data, the number of data points that "
            "the mean loss is over"
        ) from error
    if seen != size and not isinstance(sampler, SubsetRandomSampler):
        raise ValueError(
            f"an epoch of the loader has {seen} of the {size} data points of its set: give "
            "num_data, the number of data points that the mean loss is over"
        )
    return seen


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with all its tensors on `device`."""
    # Most batches are tensors in a tuple or list, for which pytree takes ten times as long.
    if isinstance(batch, Tensor):
        return batch.to(device)
    if type(batch) in (tuple, list):
        return type(batch)(to_device(part, device) for part in batch)
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except TypeError:
        return None
