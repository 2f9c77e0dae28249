"""Validation data for a task that has none: a part of its training data."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, Subset

from csgmcmc.arguments import check_number
from csgmcmc.loaders import clone_loader
from csgmcmc.task import Task


class HeldOut(NamedTuple):
    """A task with validation data, and a sentence on where they are from."""

    task: Task
    words: str


def with_validation(task: Task, share: float, seed: int) -> HeldOut:
    """The task itself if it has validation data, else one that holds out a share of the data.

    That needs a `DataLoader` with or without shuffling, not with a custom sampler.
    """
    if task.validation is not None:
        return HeldOut(task, "scored on the task's validation data")
    check_number("held_out", share, above=0, below=1)
    loader = task.data
    if not _can_be_split(loader):
        raise ValueError(
            "the task has no validation data, and its training data cannot be split: return "
            "validation=, a loader of data that are used neither for training nor for testing"
        )
    size = len(loader.dataset)
    count = round(share * size)
    if not 0 < count < size:
        raise ValueError(
            f"held_out={share:g} of {size} training points leaves {count} to validate on and "
            f"{size - count} to train on: give another held_out, or validation= in the task"
        )
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
    held, kept = sorted(order[:count]), sorted(order[count:])
    task = replace(
        task,
        data=_subset(loader, kept, shuffle=isinstance(loader.sampler, RandomSampler)),
        validation=_subset(loader, held, shuffle=False, drop_last=False, generator=None),
        num_data=None if task.num_data is None else task.num_data * len(kept) / size,
    )
    return HeldOut(task, f"scored on {count} of the {size} training points, which are held out")


def _can_be_split(loader: Any) -> bool:
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return False
    data: Any = loader.dataset
    order: Any = loader.sampler
    if type(order) not in (RandomSampler, SequentialSampler) or not hasattr(data, "__len__"):
        return False
    return not getattr(order, "replacement", False) and len(order) == len(data)


def _subset(loader: DataLoader, chosen: list[int], **changes: Any) -> DataLoader:
    """A loader of some of the data; a batch holds no more points than there are."""
    batch_size = min(loader.batch_size or 1, len(chosen))
    return clone_loader(loader, Subset(loader.dataset, chosen), batch_size=batch_size, **changes)
