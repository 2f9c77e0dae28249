"""Schedules one after another, as one schedule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from csgmcmc.arguments import check_items
from csgmcmc.schedules.base import Schedule, Tick


@dataclass(frozen=True)
class Joined(Schedule):
    """Runs `schedules` one after another; steps and cycles are numbered through.

    "0.1 to 0.001 over 150 epochs without noise, then decay from 0.01 with noise", with a sampler
    whose lr is 0.1:

        Joined([
            Ramp(150 * epoch, start=1, end=0.01, shape="exponential"),
            Decreasing(50 * epoch, gamma=0.5005, lr_scale=0.1, draws=20),
        ])
    """

    schedules: Sequence[Schedule]

    def __post_init__(self) -> None:
        parts = tuple(check_items("schedules", self.schedules, "a list of schedules"))
        if not parts:
            raise ValueError("schedules must hold at least one schedule, got none")
        object.__setattr__(self, "schedules", parts)

    @cached_property
    def steps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All steps: the sum of the parts'."""
        return sum(part.steps for part in self.schedules)

    @property
    def total_cycles(self) -> int:
        return sum(part.total_cycles for part in self.schedules)

    @property
    def restarts(self) -> bool:
        return any(part.restarts for part in self.schedules)

    @property
    def total_draws(self) -> int:
        return sum(part.total_draws for part in self.schedules)

    def tick(self, step: int) -> Tick:
        index = first_step = first_cycle = 0
        while step - first_step >= self.schedules[index].steps:
            first_step += self.schedules[index].steps
            first_cycle += self.schedules[index].total_cycles
            index += 1
        tick = self.schedules[index].tick(step - first_step)
        return replace(tick, step=step, cycle=first_cycle + tick.cycle)
