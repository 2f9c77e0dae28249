"""Steps and options of a schedule that watch, checks and reports look at."""

import inspect
from typing import TYPE_CHECKING

import numpy as np

from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Schedule, Tick
from csgmcmc.schedules.base import options_at

if TYPE_CHECKING:
    from csgmcmc.loop.stepper import Stepper

MAX_STEPS = 1000  # of a schedule that are evaluated


def sampling_temperature(stepper: "Stepper") -> float:
    """The highest temperature of the sampling stages; 0 if no noise is injected there."""
    if not isinstance(stepper.sampler, Sampler):
        return 0.0
    ticks = sampling_ticks(stepper.schedule)
    groups = stepper.sampler.param_groups
    return max(options_at(group, tick)["temperature"] for group in groups for tick in ticks)


def sampling_ticks(schedule: Schedule) -> list[Tick]:
    """Some ticks of the sampling stages; of all stages if there is no sampling stage."""
    ticks = [schedule(step) for step in evenly_spaced(schedule.steps, MAX_STEPS)]
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
