"""Checks that a Lightning `Trainer` can sample: its loop, length, optimizer and loader."""

import math
import os
import warnings
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from torch.utils.data import DistributedSampler

from csgmcmc.checks.num_data import warn_of_num_data
from csgmcmc.draws import Draws, MemoryDraws
from csgmcmc.errors import SamplingWarning
from csgmcmc.integrations.resumable import ResumableLoader
from csgmcmc.schedules import Schedule
from csgmcmc.stepper import Stepper
from csgmcmc.stepper.words import describe_end

# Strategies in which every process has all weights, by name: `pytorch_lightning` has its own.
WHOLE = {"SingleDeviceStrategy", "DDPStrategy"}


def check_loop(trainer: Trainer, module: LightningModule) -> None:
    """Raise a `ValueError` if the module steps by itself, or a strategy shards the weights."""
    if not module.automatic_optimization:
        raise ValueError(
            "automatic_optimization is False: the schedule needs a Trainer that steps one "
            "optimizer itself; set it to True, or use csgmcmc.Stepper in your own loop"
        )
    strategy = type(trainer.strategy)
    if not WHOLE & {kind.__name__ for kind in strategy.__mro__}:
        raise ValueError(
            f"strategy {strategy.__name__} does not keep all weights in each process: use "
            "strategy='auto' or 'ddp', or csgmcmc.Chain for sharded models"
        )


def check_kept(draws: Draws, process: int) -> None:
    """Raise a `ValueError` for draws in memory that the process with that id does not see."""
    if isinstance(draws, MemoryDraws) and os.getpid() != process:
        raise ValueError(
            "draws in memory would be lost with the processes that this strategy starts: "
            "keep them in a DrawStore"
        )


def warn_of_early_stopping(trainer: Trainer) -> None:
    """Warn of callbacks that end the run where the validation loss rises."""
    callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    names = {kind.__name__ for each in callbacks for kind in type(each).__mro__}
    if "EarlyStopping" in names and trainer.is_global_zero:  # also that of `pytorch_lightning`
        warnings.warn(
            "EarlyStopping may end the run before its draws are made: every cycle raises the loss, "
            "by design, when it begins; take it out of the Trainer's callbacks",
            SamplingWarning,
            stacklevel=2,
        )


def warn_of_early_end(trainer: Trainer, stepper: Stepper) -> None:
    """Warn if the run has ended before the schedule; not where `is_endless` has said so before."""
    planned = trainer.estimated_stepping_batches
    trial = trainer.fast_dev_run  # pyright: ignore[reportAttributeAccessIssue]
    if stepper.done or stepper.taken >= planned or trial or not trainer.is_global_zero:
        return
    warnings.warn(describe_end(stepper), SamplingWarning, stacklevel=2)


def is_endless(trainer: Trainer, schedule: Schedule) -> bool:
    """Whether the `Trainer` has no length of its own, so that the schedule must stop it.

    Raises a `ValueError` if it takes more steps than the schedule, and warns if fewer.
    """
    steps = schedule.steps
    callbacks = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    changing = any(isinstance(each, GradientAccumulationScheduler) for each in callbacks)
    total = -1 if changing else trainer.estimated_stepping_batches
    if total < 0 or math.isinf(total):
        return True
    advice = f"give it max_steps={steps} and no max_epochs, or the schedule steps={total}"
    if total > steps:
        raise ValueError(
            f"the Trainer takes {total} steps, more than the {steps} of the schedule: {advice}"
        )
    trial = trainer.fast_dev_run  # pyright: ignore[reportAttributeAccessIssue]
    if total < steps and trainer.is_global_zero and not trial:
        kept = sum(schedule(step).collect for step in range(int(total)))
        warnings.warn(
            f"the Trainer stops after {total} of the {steps} steps of the schedule, with "
            f"{kept} of its {schedule.total_draws} draws: {advice}",
            stacklevel=2,
        )
    return False


def only_optimizer(trainer: Trainer) -> torch.optim.Optimizer:
    """The only optimizer; raises a `ValueError` if a scheduler would change its lr."""
    if len(trainer.optimizers) != 1:
        raise ValueError(
            f"configure_optimizers returns {len(trainer.optimizers)} optimizers: return one"
        )
    optimizer = trainer.optimizers[0]
    if not any("lr" in group for group in optimizer.param_groups):
        raise ValueError(
            "configure_optimizers must return a sampler, or an optimizer with an lr, got "
            f"{type(optimizer).__name__}"
        )
    if trainer.lr_scheduler_configs:
        names = ", ".join(type(each.scheduler).__name__ for each in trainer.lr_scheduler_configs)
        raise ValueError(
            f"configure_optimizers returns {names}, but the schedule of SamplingCallback sets lr: "
            "return the sampler alone"
        )
    return optimizer


def check_num_data(trainer: Trainer, batch: Any) -> None:
    """Warn if N does not fit the examples and their targets; the loss itself is not known."""
    sampler, loader = trainer.optimizers[0], trainer.train_dataloader
    warn_of_num_data(sampler, loader, batch, processes=trainer.world_size)


def resumable_loader(trainer: Trainer) -> ResumableLoader | None:
    """The `ResumableLoader` of the training data, if there is one."""
    loader = trainer.train_dataloader
    if not isinstance(loader, ResumableLoader):
        return None
    sampler = getattr(loader.loader, "sampler", None)
    if trainer.world_size > 1 and not isinstance(sampler, DistributedSampler):
        raise ValueError(  # Lightning would give an ordinary loader such a sampler
            f"the ResumableLoader gives all {trainer.world_size} processes the same data: make its "
            "loader with sampler=DistributedSampler(data), in the module's train_dataloader"
        )
    return loader
