"""What the checks read of a run: its stepper, and the options that its schedule sets."""

import inspect
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Schedule, Tick, options_at

MOST_STEPS = 1000  # of a schedule that are evaluated


@runtime_checkable
class StepperLike(Protocol):
    """What the checks need of a `Stepper`; anything with these attributes will do.

    Attributes:
        model: the network, or a `Stack` of them.
        sampler: over the model's parameters.
        schedule: of the run.
        batches_per_step: number of minibatches whose mean is the gradient of one step.
        chain_id: number of the chain; of the first one, for a stack.
    """

    @property
    def model(self) -> nn.Module: ...
    @property
    def sampler(self) -> torch.optim.Optimizer: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def batches_per_step(self) -> float: ...
    @property
    def chain_id(self) -> int: ...


def sampling_temperature(stepper: StepperLike) -> float:
    """The highest temperature of the sampling stages; 0 if no noise is injected there."""
    if not isinstance(stepper.sampler, Sampler):
        return 0.0
    ticks = sampling_ticks(stepper.schedule)
    groups = stepper.sampler.param_groups
    return max(options_at(group, tick)["temperature"] for group in groups for tick in ticks)


def sampling_ticks(schedule: Schedule) -> list[Tick]:
    """Some of the ticks of the sampling stages; of all stages if there is no sampling stage."""
    ticks = [schedule(step) for step in evenly_spaced(schedule.steps, MOST_STEPS)]
    return [tick for tick in ticks if tick.stage == "sample"] or ticks


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()


def level_of_caller() -> int:
    """The `stacklevel` of the first line outside this library, seen from the caller of this."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("csgmcmc."):
        level, frame = level + 1, frame.f_back
    return level
