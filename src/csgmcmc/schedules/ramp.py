"""A step size that goes from one value to another: warm-up, annealing, or a burn-in to join."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from csgmcmc.arguments import check_choice, check_number
from csgmcmc.schedules.base import Schedule, Tick

Shape = Literal["linear", "cosine", "exponential"]

SHAPES: dict[str, Callable[[float, float, float], float]] = {
    "linear": lambda start, end, done: start + (end - start) * done,
    "cosine": lambda start, end, done: end + (start - end) * (math.cos(math.pi * done) + 1) / 2,
    "exponential": lambda start, end, done: start * (end / start) ** done,
}


@dataclass(frozen=True)
class Ramp(Schedule):
    """The lr scale goes from `start` at the first step to `end` at the last. Keeps no draws.

    Args:
        steps: sampler steps; a schedule of one step uses `start`.
        start: lr scale at the first step.
        end: lr scale at the last step.
        shape: `"linear"`, `"cosine"` (flat at both ends) or `"exponential"` (a constant factor
            per step; both ends must be above 0).
        temperature_scale: factor of the sampler's temperature; 0, the default, draws no noise.
    """

    steps: int
    start: float
    end: float
    shape: Shape = "linear"
    temperature_scale: float = 0.0

    def __post_init__(self) -> None:
        self.make_plain()
        check_choice("shape", self.shape, tuple(SHAPES))
        bound = {"above" if self.shape == "exponential" else "at_least": 0}
        check_number("start", self.start, **bound)
        check_number("end", self.end, **bound)
        check_number("temperature_scale", self.temperature_scale, at_least=0)

    @property
    def total_draws(self) -> int:
        return 0

    def tick(self, step: int) -> Tick:
        done = step / max(self.steps - 1, 1)
        return Tick(
            step=step,
            cycle=0,
            stage="burn-in",
            lr_scale=SHAPES[self.shape](self.start, self.end, done),
            temperature_scale=float(self.temperature_scale),
            collect=False,
        )
