"""Schedules one after another, as one schedule."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from csgmcmc.arguments import check_items, check_kind
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
        parts = check_items("schedules", self.schedules, "a list of schedules")
        if not parts:
            raise ValueError("schedules must hold at least one schedule, got none")
        for part in parts:
            check_kind("each of schedules", part, Schedule, "a schedule")
        object.__setattr__(self, "schedules", tuple(parts))

    @cached_property
    def steps(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All steps: the sum of the parts'."""
        return self._ends[-1]

    @property
    def total_cycles(self) -> int:
        return self._cycle_ends[-1]

    @property
    def total_draws(self) -> int:
        return sum(part.total_draws for part in self.schedules)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(part.steps for part in self.schedules))

    @cached_property
    def _cycle_ends(self) -> list[int]:
        return list(accumulate(part.total_cycles for part in self.schedules))

    def tick(self, step: int) -> Tick:
        index = bisect_right(self._ends, step)
        part = self.schedules[index]
        tick = part(step - (self._ends[index] - part.steps))
        cycles_before = self._cycle_ends[index] - part.total_cycles
        return replace(tick, step=step, cycle=cycles_before + tick.cycle)
