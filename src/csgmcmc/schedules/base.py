"""Base of all schedules: pure functions of the step.

A schedule gives, for each step, the *scale* of the sampler's step size, temperature and weight
decay, and whether the weights after that step are kept as a draw. It has no counter and no state:
`schedule(step)` is always the same, so that resuming needs only the number of the step.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import torch

from csgmcmc.arguments import check_count, plain_value

MAX_STEPS = 2**53
"""Schedules have fewer steps than this, so that double precision counts them exactly."""

Stage = Literal["burn-in", "explore", "sample"]


@dataclass(frozen=True, slots=True)
class Tick:
    """What a schedule says about one step.

    Attributes:
        step: the step's number, from 0.
        cycle: the cycle it belongs to, from 0.
        stage: `"burn-in"`, `"explore"` or `"sample"`. Draws are kept only in `"sample"`, and not
            in all of it: the steps before the `burn_in` of `Cyclical` keep their usual stages.
        lr_scale: factor of the sampler's initial lr.
        temperature_scale: factor of the sampler's initial temperature.
        collect: whether the weights after this step are kept as a draw.
        weight_decay_scale: factor of the sampler's initial weight decay, the prior's precision.
        restart: the share rho of the weights that a restart before this step keeps: 1, no restart,
            to 0, fresh weights. A schedule with restarts says so by its `restarts`.
    """

    step: int
    cycle: int
    stage: Stage
    lr_scale: float
    temperature_scale: float
    collect: bool
    weight_decay_scale: float = 1.0
    restart: float = 1.0


SCALED = (
    ("lr", "initial_lr", "lr_scale"),
    ("temperature", "initial_temperature", "temperature_scale"),
    ("weight_decay", "initial_weight_decay", "weight_decay_scale"),
)
"""The options of a group that a schedule scales, each with the name of its initial value in the
group, and of the field of `Tick` with its factor."""


class Schedule(ABC):
    """Base of all schedules: `schedule(step)` gives the step's `Tick`.

    A subclass is a frozen dataclass with the field `steps`, which checks its arguments in
    `__post_init__`, and implements `tick`.
    """

    steps: int

    def make_plain(self) -> None:
        """For `__post_init__`: numpy numbers and the like become plain ones; checks `steps`."""
        for field in fields(self):  # pyright: ignore[reportArgumentType]  (of a subclass)
            object.__setattr__(self, field.name, plain_value(getattr(self, field.name)))
        check_count("steps", self.steps, at_least=1, below=MAX_STEPS)

    def __call__(self, step: int) -> Tick:
        """The `Tick` of `step`, which counts from 0 to `steps - 1`."""
        step = check_count("step", step, at_least=0)
        if step >= self.steps:
            raise ValueError(
                f"step {step} is past the schedule's end: its steps={self.steps} count from 0"
            )
        return self.tick(step)

    @abstractmethod
    def tick(self, step: int) -> Tick:
        """The `Tick` of a step from 0 to `steps - 1`; call `schedule(step)`, which checks it."""

    @property
    def total_cycles(self) -> int:
        """How many cycles a whole run has."""
        return 1

    @property
    def restarts(self) -> bool:
        """Whether the network restarts before some of the steps: see `Tick.restart`."""
        return False

    @property
    def total_draws(self) -> int:
        """How many draws a whole run keeps."""
        return sum(self.tick(step).collect for step in range(self.steps))

    def apply(self, optimizer: torch.optim.Optimizer, step: int) -> Tick:
        """Set each group's `lr`, `temperature` and `weight_decay` for `step` from its initial ones.

        Works on any torch optimizer with an `lr`; the others are set in groups that have them. The
        initial values are the group's `initial_lr`, `initial_temperature` and
        `initial_weight_decay`, which samplers record when they are made; for other optimizers,
        the values at the first call are recorded.
        """
        tick, groups = self(step), optimizer.param_groups
        if not any("lr" in group for group in groups):
            raise ValueError(f"{type(optimizer).__name__} has no lr for a schedule to set")
        record_initial_options(optimizer)  # of all groups first: they may share an lr tensor
        for group in groups:
            for option, value in _scaled_options(group, tick).items():
                if isinstance(group[option], torch.Tensor):  # captured in a compiled step
                    group[option].fill_(value)
                else:
                    group[option] = value
        return tick

    def table(self) -> dict[str, np.ndarray]:
        """All ticks as one array for each field of `Tick`, for plotting and checking."""
        ticks = [self.tick(step) for step in range(self.steps)]
        names = [field.name for field in fields(Tick)]
        return {name: np.array([getattr(tick, name) for tick in ticks]) for name in names}


def options_at(group: Mapping[str, Any], tick: Tick) -> dict[str, Any]:
    """The options of a parameter group as they are at `tick`: lr, temperature, weight decay.

    These are the group's initial values (`initial_lr`, ...), or where these are not recorded its
    present ones, times the factors of `tick`. The group itself is not changed.
    """
    return {**group, **_scaled_options(group, tick)}


def record_initial_options(optimizer: torch.optim.Optimizer) -> None:
    """Record the present values of scaled options in groups that have no initial ones."""
    for group in optimizer.param_groups:
        for option, initial, _ in SCALED:
            if option in group:
                group.setdefault(initial, float(group[option]))


def _scaled_options(group: Mapping[str, Any], tick: Tick) -> dict[str, float]:
    return {
        option: float(group.get(initial, group[option])) * getattr(tick, scale)
        for option, initial, scale in SCALED
        if option in group
    }
