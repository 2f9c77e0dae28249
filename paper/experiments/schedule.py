"""Schedule: the step sizes of the paper's first figure, and the sums that its theorems use.

The paper gives no settings for that figure. These are the ones of its 25 Gaussians, the only place
where it states both schedules in full: cyclical with M cycles from alpha_0, and a * k^-gamma.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csgmcmc.schedules import Cyclical, Decreasing, Keep, Schedule
from paper.arguments import check_count
from paper.experiments.base import Config, Experiment, Record

POINTS = 60
"""Points kept of each curve between two changes of stage."""


@dataclass(frozen=True)
class ScheduleConfig(Config):
    """Both schedules; the figure shows the first `cycles_shown` cycles."""

    steps: int = 50_000
    cycles: int = 30
    exploration: float = 0.25
    cyclical_lr: float = 0.09
    decreasing_lr: float = 0.05
    gamma: float = 0.55
    cycles_shown: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("cycles_shown", self.cycles_shown, at_least=1)

    @property
    def cyclical(self) -> Cyclical:
        return Cyclical(self.steps, self.cycles, self.exploration, keep=Keep(every=1))

    @property
    def decreasing(self) -> Decreasing:
        return Decreasing(self.steps, self.gamma, keep=Keep(every=1))


class ScheduleExperiment(Experiment[ScheduleConfig]):
    """Cyclical and decreasing step sizes, with their stages."""

    name = "schedule"
    summary = "Figure 1: cyclical and decreasing step sizes, with stages"
    presets: Mapping[str, ScheduleConfig] = {
        "paper": ScheduleConfig(),
        "laptop": ScheduleConfig(),  # nothing here is long enough to be cut
        "smoke": ScheduleConfig(steps=3000, cycles=6),
    }

    def jobs(
        self, config: ScheduleConfig, done: Mapping[str, Record]
    ) -> Mapping[str, Mapping[str, Any]]:
        return {"cyclical and decreasing": {}}

    def run(self, config: ScheduleConfig, data: Path | None, **options: Any) -> Record:
        length = config.cyclical.cycle_length
        shown = config.cycles_shown * length
        cyclical = _describe(config.cyclical, config.cyclical_lr, length, shown)
        decreasing = _describe(config.decreasing, config.decreasing_lr, length, shown)
        return {
            "cycle_length": length,
            "cyclical": {**cyclical, **distance_from_the_paper(config)},
            "decreasing": decreasing,
        }


def equation_one(config: ScheduleConfig) -> tuple[NDArray, NDArray]:
    """The paper's alpha_k and r(k) for k = 1 to K, as they are printed there."""
    k = np.arange(1, config.steps + 1)
    length = math.ceil(config.steps / config.cycles)
    r = np.mod(k - 1, length) / length
    return config.cyclical_lr / 2 * (np.cos(np.pi * r) + 1), r


def distance_from_the_paper(config: ScheduleConfig) -> Record:
    """Where the library's table differs from the paper's formulas, over all steps."""
    table = config.cyclical.table()
    step_sizes, r = equation_one(config)
    exploring = table["stage"] == "explore"
    return {
        "largest_difference": float(
            np.abs(config.cyclical_lr * table["lr_scale"] - step_sizes).max()
        ),
        "steps_in_another_stage": int((exploring != (r < config.exploration)).sum()),
        "steps_at_another_temperature": int((table["temperature_scale"] != ~exploring).sum()),
    }


def _describe(schedule: Schedule, lr: float, cycle_length: int, shown: int) -> Record:
    table = schedule.table()
    step_sizes = lr * table["lr_scale"]
    starts = step_sizes[::cycle_length]
    ends = step_sizes[[*range(cycle_length - 1, schedule.steps - 1, cycle_length), -1]]
    return {
        "sum": float(step_sizes.sum()),
        "sum_of_squares": float((step_sizes**2).sum()),
        "draws": schedule.total_draws,
        "cycle_starts": _rounded(starts),
        "cycle_ends": _rounded(ends),
        "curve": _curve(table, step_sizes, shown),
    }


def _curve(table: Mapping[str, NDArray], step_sizes: NDArray, shown: int) -> list[Record]:
    """The first steps, in pieces of one stage of one cycle, each thinned to a few points."""
    cycle, stage = table["cycle"][:shown], table["stage"][:shown]
    changes = np.flatnonzero((cycle[1:] != cycle[:-1]) | (stage[1:] != stage[:-1])) + 1
    pieces = np.split(np.arange(len(stage)), changes)
    return [
        {
            "stage": str(stage[piece[0]]),
            "steps": [int(step) for step in _thinned(piece)],
            "step_sizes": _rounded(step_sizes[_thinned(piece)]),
        }
        for piece in pieces
    ]


def _thinned(piece: NDArray) -> NDArray:
    """Some of the steps, both ends among them, dense where a power of k bends: at its start."""
    positions = np.geomspace(1, len(piece), POINTS).round() - 1
    even = np.linspace(0, len(piece) - 1, POINTS).round()
    return piece[np.union1d(positions, even).astype(int)]


def _rounded(values: NDArray) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
