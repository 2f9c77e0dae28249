"""What Accelerate has prepared: checks, and batches from any position of an epoch."""

import warnings
from collections.abc import Generator
from typing import Any

from accelerate import Accelerator
from accelerate.data_loader import SeedableRandomSampler
from accelerate.utils import DistributedType
from torch.utils.data import RandomSampler

from csgmcmc.loaders import describe_loader
from csgmcmc.randomness import random_state, restore_random_state

SHARDED = (DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM)


def check_whole(kind: DistributedType) -> None:
    """Raise a `ValueError` if no process has all weights of the model."""
    if kind in SHARDED:
        raise ValueError(
            f"Accelerate shards the model with {kind.value}, which replaces the sampler: use DDP, "
            "or shard with FSDP2 and use csgmcmc.Chain"
        )


def check_loader(loader: Any) -> dict[str, Any]:
    """Describe the loader, or raise a `ValueError` if its position could not be restored."""
    if not hasattr(loader, "set_epoch"):
        raise ValueError(
            "loader must be the one that accelerator.prepare returned, got a "
            f"{type(loader).__name__}"
        )
    if getattr(loader, "use_stateful_dataloader", False):
        raise ValueError(
            "use_stateful_dataloader=True would skip batches that are skipped here already: "
            "use use_seedable_sampler=True instead"
        )
    sizes = describe_loader(loader)
    if sizes["batches"] is None:
        raise ValueError(
            "loader must have a length, got one of a stream: its position could not be restored"
        )
    if not sizes["batches"]:
        raise ValueError("loader gives no batches: the data set is empty, or smaller than a batch")
    return sizes


def rest_of_epoch(accelerator: Accelerator, loader: Any, epoch: int, skip: int) -> Generator[Any]:
    """Batches of an epoch after its first `skip`."""
    loader.set_epoch(epoch)
    rest: Any = loader
    if skip:
        _warn_of_another_order(loader)
        rest = accelerator.skip_first_batches(loader, skip)
        rest.set_epoch(epoch)
    # An epoch that is restarted in its middle draws its first random numbers again. What follows,
    # such as dropout, must not be affected.
    state = random_state([]) if skip else None
    finished = False
    try:
        for batch in rest:
            if state is not None:
                restore_random_state(state, [])
                state = None
            yield batch
        finished = True
    finally:
        if not finished:  # Accelerate must be told that the loader has ended
            rest.end()


def _warn_of_another_order(loader: Any) -> None:
    sampler = loader.get_sampler()
    if isinstance(sampler, RandomSampler) and not isinstance(sampler, SeedableRandomSampler):
        warnings.warn(
            "the order of the epoch in progress is not known any more, so some data points appear "
            "twice in it and others not at all: prepare the loader with "
            "Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, "
            "data_seed=0))",
            stacklevel=4,
        )
