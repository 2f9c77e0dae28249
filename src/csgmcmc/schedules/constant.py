"""A constant step size and temperature: plain SGLD and SGHMC, or SGD at temperature 0."""

from dataclasses import dataclass
from functools import cached_property

from csgmcmc.arguments import check_count, check_number
from csgmcmc.schedules.base import MOST_STEPS, Schedule, Tick
from csgmcmc.schedules.keep import Keep


@dataclass(frozen=True)
class Constant(Schedule):
    """Constant factors of the sampler's lr and temperature.

    Args:
        steps: all sampler steps, burn-in included.
        burn_in: steps at the start with no draws.
        draws: number of draws, evenly spaced over the steps after the burn-in, the last at the end.
        every: keep every n-th step after the burn-in. With neither this nor `draws`, nothing is
            kept.
        lr_scale: factor of the sampler's lr.
        temperature_scale: factor of the sampler's temperature.
    """

    steps: int
    burn_in: int = 0
    draws: int | None = None
    every: int | None = None
    lr_scale: float = 1.0
    temperature_scale: float = 1.0

    def __post_init__(self) -> None:
        self.make_plain()
        check_count("steps", self.steps, at_least=1, below=MOST_STEPS)
        check_count("burn_in", self.burn_in, at_least=0)
        check_number("lr_scale", self.lr_scale, at_least=0)
        check_number("temperature_scale", self.temperature_scale, at_least=0)
        self._keep.check_window(self._window, "the schedule", "give more steps or less burn_in")

    @property
    def total_draws(self) -> int:
        return self._keep.count(self._window)

    @cached_property
    def _keep(self) -> Keep:
        return Keep(self.draws, self.every)

    @property
    def _window(self) -> int:
        return max(self.steps - self.burn_in, 0)

    def tick(self, step: int) -> Tick:
        position = step - self.burn_in + 1
        return Tick(
            step=step,
            cycle=0,
            stage="sample" if position >= 1 else "burn-in",
            lr_scale=float(self.lr_scale),
            temperature_scale=float(self.temperature_scale),
            collect=position >= 1 and self._keep.contains(position, self._window),
        )
