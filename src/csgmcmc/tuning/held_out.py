"""Validation data for a task that brings none: a part of its training data, never of a test set."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
)

from csgmcmc.arguments import check_number
from csgmcmc.task import Task


@dataclass(frozen=True)
class HeldOut:
    """A task with validation data, and where they are from, in words."""

    task: Task
    words: str


def with_validation(task: Task, share: float, seed: int) -> HeldOut:
    """The task itself if it has validation data, else one that holds out a share of the data.

    Args:
        task: its data must be a `DataLoader` that shuffles or goes straight through its data set.
        share: of the training data, which is held out.
        seed: of the choice, which does not depend on anything else.
    """
    if task.validation is not None:
        return HeldOut(task, "scored on the task's validation data")
    check_number("held_out", share, above=0, below=1)
    loader = task.data
    if not _can_be_split(loader):
        raise ValueError(
            "the task has no validation data, and its training data cannot be split: return "
            "validation=, a loader of data that are neither trained nor tested on"
        )
    size = len(loader.dataset)
    count = round(share * size)
    if not 0 < count < size:
        raise ValueError(
            f"held_out={share:g} of {size} training data leaves {count} to validate on and "
            f"{size - count} to train on: give another held_out, or validation= in the task"
        )
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
    held, kept = sorted(order[:count]), sorted(order[count:])
    task = replace(
        task,
        data=_alike(loader, kept, training=True),
        validation=_alike(loader, held, training=False),
        num_data=None if task.num_data is None else task.num_data * len(kept) / size,
    )
    return HeldOut(task, f"scored on {count} of the {size} training data, which are held out")


def _can_be_split(loader: Any) -> bool:
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return False
    data: Any = loader.dataset
    order: Any = loader.sampler
    return (
        not isinstance(data, IterableDataset)
        and hasattr(data, "__len__")
        and type(order) in (RandomSampler, SequentialSampler)
        and not getattr(order, "replacement", False)
        and len(order) == len(data)
    )


def _alike(loader: DataLoader, chosen: list[int], *, training: bool) -> DataLoader:
    """A loader of some of the data; a batch is no larger than they are."""
    return DataLoader(
        Subset(loader.dataset, chosen),
        batch_size=min(loader.batch_size or 1, len(chosen)),
        shuffle=training and isinstance(loader.sampler, RandomSampler),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        drop_last=training and loader.drop_last,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator if training else None,
    )
