"""Accelerate: a stepper for your own loop with an `Accelerator`.

    model, sampler, loader = accelerator.prepare(model, sampler, loader)
    run = AcceleratedRun(accelerator, model, sampler, schedule, draws)
    for batch in run.batches(loader):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            run.step()

Accelerate handles processes, precision and checkpoints; the run handles the schedule and the draws.
"""

import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

import torch
from torch import nn
from torch.utils.data import RandomSampler

from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws
from csgmcmc.integrations import require
from csgmcmc.integrations.counting import (
    check_not_sequences,
    num_targets,
    rescale_short_accumulation,
)
from csgmcmc.loaders import describe_loader
from csgmcmc.loop import Stepper
from csgmcmc.loop.num_data import warn_of_num_data
from csgmcmc.randomness import random_state, restore_random_state
from csgmcmc.schedules import Schedule, Tick

require("accelerate", "accelerate")

from accelerate import Accelerator
from accelerate.data_loader import SeedableRandomSampler
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import DistributedType

__all__ = ["AcceleratedRun", "num_targets"]


class AcceleratedRun:
    """Steps a prepared sampler along a schedule; `accelerator.save_state` saves its position.

    Do not prepare the schedule as a scheduler: Accelerate steps those once for each process.

    Args:
        accelerator: the `Accelerator`.
        model: the model that `accelerator.prepare` returned.
        sampler: the sampler that it returned.
        schedule: scales lr and temperature at each step, and says which draws are kept. Its `steps`
            are steps of the sampler, not batches.
        draws: where draws are kept; the main process writes them.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        sampler: torch.optim.Optimizer,
        schedule: Schedule,
        draws: Draws,
    ) -> None:
        check_not_sharded(accelerator.distributed_type)
        if not isinstance(sampler, AcceleratedOptimizer):
            raise ValueError("sampler must be the one that accelerator.prepare returned")
        self.accelerator, self.model, self.sampler = accelerator, model, sampler
        processes = accelerator.num_processes
        self.stepper = Stepper(
            accelerator.unwrap_model(model),
            sampler.optimizer,
            schedule,
            draws,
            layout=ProcessLayout(replica_id=accelerator.process_index, replicas=processes),
            hold_lock=False,
        )
        batches = accelerator.gradient_accumulation_steps * processes
        self.stepper.batches_per_step = float(batches)
        self.seen = 0
        """Number of batches that this process has seen."""
        self._waiting = 0  # batches since the last step
        accelerator.register_for_checkpointing(self)

    @property
    def taken(self) -> int:
        """Number of steps that the sampler has taken."""
        return self.stepper.taken

    @property
    def done(self) -> bool:
        """Whether all steps of the schedule have been taken."""
        return self.stepper.done

    def batches(self, loader: Any) -> Iterator[Any]:
        """Batches of the prepared `loader`, epoch after epoch, until the schedule ends.

        After `accelerator.load_state` they continue from the saved position. For that the loader
        must shuffle by a seed: `DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)`.
        """
        if not hasattr(loader, "set_epoch"):
            raise ValueError("loader must be the one that accelerator.prepare returned")
        length = describe_loader(loader)["batches"]
        if not length:
            raise ValueError("loader must have a length above 0: streams cannot be resumed")
        while not self.done:
            epoch, skip = divmod(self.seen, length)
            with closing(_rest_of_epoch(self.accelerator, loader, epoch, skip)) as rest:
                for batch in rest:
                    if self.seen == 0:
                        self._check_num_data(loader, batch)
                    yield batch
                    if self.done:
                        return

    def _check_num_data(self, loader: Any, batch: Any) -> None:
        if isinstance(batch, Mapping):
            num_data = self.sampler.param_groups[0].get("num_data")
            check_not_sequences(batch.get("labels"), num_data, loader)
        if self.accelerator.is_main_process:
            processes = self.accelerator.num_processes
            warn_of_num_data(self.sampler.optimizer, loader, batch, processes=processes)

    def step(self) -> Tick | None:
        """Step the sampler if the gradients are complete, and keep the draw if it is due.

        Call it for every batch, after `accelerator.backward`. Returns the tick of the step, or None
        if no step was taken: gradients are still being accumulated, or have overflowed.
        """
        if not self.stepper.begun:  # only now: a checkpoint may have been loaded before this
            self.stepper.begin()
        self.seen += 1
        self._waiting += 1
        if not self.accelerator.sync_gradients:
            return None
        divided_by = self.accelerator.gradient_accumulation_steps
        rescale_short_accumulation(self.stepper.sampled(), self._waiting, divided_by)
        self._waiting = 0
        self.sampler.step()
        self.sampler.zero_grad()
        if self.sampler.step_was_skipped:
            return None
        tick = self.stepper.record()
        self.stepper.prepare()
        return tick

    def state_dict(self) -> dict[str, Any]:
        """The state that `accelerator.save_state` saves."""
        if self._waiting:
            raise ValueError("save_state must be called after a step() that has returned a tick")
        return {"seen": self.seen, **self.stepper.position()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `accelerator.load_state` has read."""
        self.stepper.load_position(state_dict)
        self.seen, self._waiting = int(state_dict["seen"]), 0


def check_not_sharded(kind: DistributedType) -> None:
    """Raise a `ValueError` if no process has all weights of the model."""
    sharded = (DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM)
    if kind in sharded:
        raise ValueError(f"{kind.value} shards the model: use DDP, or csgmcmc.Chain with FSDP2")


def _rest_of_epoch(accelerator: Accelerator, loader: Any, epoch: int, skip: int) -> Generator[Any]:
    """Batches of an epoch after its first `skip`."""
    loader.set_epoch(epoch)
    rest: Any = loader
    if skip:
        order = loader.get_sampler()
        if isinstance(order, RandomSampler) and not isinstance(order, SeedableRandomSampler):
            warnings.warn(
                "the order of the epoch in progress cannot be restored, so some data points appear "
                "twice in it and others not at all: give the Accelerator dataloader_config="
                "DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)",
                stacklevel=3,
            )
        rest = accelerator.skip_first_batches(loader, skip)
        rest.set_epoch(epoch)
    # An epoch that is restarted in its middle draws its first random numbers again. This must not
    # affect later random numbers, as of dropout.
    state = random_state([]) if skip else None
    try:
        for batch in rest:
            if state is not None:
                restore_random_state(state, [])
                state = None
            yield batch
    except BaseException:  # Accelerate must be told that the loader has ended
        rest.end()
        raise
