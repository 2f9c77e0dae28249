"""Data loaders and their batches: sizes, a description to compare, and the loss of a batch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, DistributedSampler, IterableDataset, SubsetRandomSampler

Loss = Callable[..., Tensor]
"""Mean negative log-likelihood of a batch; see `batch_loss` for how it is called."""


def check_data(data: Any, name: str = "data") -> None:
    """Raise a `ValueError` for a data set in place of a loader."""
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise ValueError(
            f"{name} is a {type(data).__name__}, a data set, which gives one example at a time: "
            f"give a loader of it, as in DataLoader({name}, batch_size=64)"
        )


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
    remedy = "give num_data, the number of data points that the mean loss is over"
    try:
        size = len(loader.dataset)
        seen = size if sampler is None or isinstance(sampler, DistributedSampler) else len(sampler)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the size of the data set is not known: {remedy}") from error
    if seen != size and not isinstance(sampler, SubsetRandomSampler):
        raise ValueError(
            f"an epoch of the loader has {seen} of the {size} data points of its set: {remedy}"
        )
    return seen


def is_pair(batch: Any) -> bool:
    """Whether a batch is a pair of inputs and targets."""
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def batch_loss(loss: Loss | None, model: Callable[..., Any], batch: Any) -> Tensor:
    """`loss(model(inputs), targets)` for a pair, `loss(model, batch)` for any other batch.

    Without a loss the model is a density, which returns U.
    """
    if loss is None:
        return model()
    if is_pair(batch):
        return loss(model(batch[0]), batch[1])
    return loss(model, batch)


@contextmanager
def quietly(model: nn.Module) -> Iterator[None]:
    """Evaluate `model` without side effects: no gradients, eval mode, and modes restored after."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def to_device(batch: Any, device: torch.device) -> Any:
    """A batch with all its tensors on `device`."""
    if isinstance(batch, Tensor):  # the same, but faster
        return batch.to(device)
    return pytree.tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except TypeError:
        return None
