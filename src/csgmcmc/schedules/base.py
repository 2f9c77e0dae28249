"""What every schedule is: a pure function of the step.

A schedule says, for each step, what *share* of the sampler's own step size and temperature to use,
and whether the weights after that step are kept as a draw. It holds no counter and patches nothing:
`schedule(step)` is the same whenever it is asked, so that resuming needs only the step's number.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch

from csgmcmc.arguments import check_count

Stage = Literal["burn-in", "explore", "sample"]


@dataclass(frozen=True, slots=True)
class Tick:
    """What a schedule says about one step.

    Attributes:
        step: the step's number, from 0.
        cycle: the cycle it belongs to, from 0.
        stage: `"burn-in"`, `"explore"` or `"sample"`. Draws are kept in `"sample"` alone, though
            not always: `Cyclical` has a `burn_in` that goes through its usual stages.
        lr_scale: share of the sampler's initial lr.
        temperature_scale: share of the sampler's initial temperature.
        collect: whether the weights after this step are a draw to keep.
    """

    step: int
    cycle: int
    stage: Stage
    lr_scale: float
    temperature_scale: float
    collect: bool


class Schedule(ABC):
    """Base of all schedules: `schedule(step)` gives the step's `Tick`.

    A subclass is a frozen dataclass with the field `steps`, which checks its arguments when it is
    made, and implements `_tick`, `total_draws` and `examples`.
    """

    steps: int

    def __call__(self, step: int) -> Tick:
        """The `Tick` of `step`, which counts from 0 to `steps - 1`."""
        step = check_count("step", step, at_least=0)
        if step >= self.steps:
            raise ValueError(
                f"step {step} is past the schedule's end: its steps={self.steps} count from 0"
            )
        return self._tick(step)

    @abstractmethod
    def _tick(self, step: int) -> Tick:
        """The `Tick` of a step that is known to be in range."""

    @property
    def total_cycles(self) -> int:
        """How many cycles a whole run has."""
        return 1

    @property
    @abstractmethod
    def total_draws(self) -> int:
        """How many draws a whole run keeps."""

    @classmethod
    @abstractmethod
    def examples(cls) -> Sequence["Schedule"]:
        """A few schedules of this kind; conformance tests run on them."""

    def apply(self, optimizer: torch.optim.Optimizer, step: int) -> Tick:
        """Set each group's `lr` and `temperature` for `step` from its initial ones.

        Works on any torch optimizer with an `lr`; `temperature` is set where a group has one. The
        initial values are the group's `initial_lr` and `initial_temperature`, which samplers
        record when they are made; of other optimizers the lr found at the first call is recorded.
        """
        tick = self(step)
        shares = {"lr": tick.lr_scale, "temperature": tick.temperature_scale}
        found = [
            (group, option)
            for group in optimizer.param_groups
            for option in shares
            if option in group
        ]
        if not any(option == "lr" for _, option in found):
            raise ValueError(f"{type(optimizer).__name__} has no lr for a schedule to set")
        # All initial values are recorded before any is changed: groups may share one lr tensor.
        for group, option in found:
            group.setdefault(f"initial_{option}", float(group[option]))
        for group, option in found:
            value = float(group[f"initial_{option}"]) * shares[option]
            if isinstance(group[option], torch.Tensor):  # captured in a compiled step
                group[option].fill_(value)
            else:
                group[option] = value
        return tick

    def table(self) -> dict[str, np.ndarray]:
        """All ticks as one array for each field of `Tick`, for plotting and checking."""
        ticks = [self._tick(step) for step in range(self.steps)]
        names = [field.name for field in fields(Tick)]
        return {name: np.array([getattr(tick, name) for tick in ticks]) for name in names}
