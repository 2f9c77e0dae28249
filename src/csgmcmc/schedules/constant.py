"""A constant step size and temperature: plain SGLD and SGHMC, or SGD at temperature 0."""

from dataclasses import InitVar, dataclass

from csgmcmc.arguments import check_count, check_number
from csgmcmc.schedules.base import Schedule, Tick
from csgmcmc.schedules.keep import Keep, check_window, resolve_keep


@dataclass(frozen=True)
class Constant(Schedule):
    """Constant factors of the sampler's lr and temperature.

    Args:
        steps: all sampler steps, burn-in included.
        burn_in: steps at the start with no draws.
        draws: number of draws, evenly spaced over the steps after the burn-in, the last at the end:
            short for `keep=Keep(per_cycle=draws)`.
        keep: which steps after the burn-in are kept. With neither this nor `draws`, none is.
        lr_scale: factor of the sampler's lr.
        temperature_scale: factor of the sampler's temperature.
    """

    steps: int
    burn_in: int = 0
    draws: InitVar[int | None] = None
    keep: Keep | None = None
    lr_scale: float = 1.0
    temperature_scale: float = 1.0

    def __post_init__(self, draws: int | None) -> None:
        if self.keep is not None or draws is not None:
            object.__setattr__(self, "keep", resolve_keep(self.keep, draws, "draws"))
        self.make_plain()
        check_count("burn_in", self.burn_in, at_least=0)
        check_number("lr_scale", self.lr_scale, at_least=0)
        check_number("temperature_scale", self.temperature_scale, at_least=0)
        if self.keep is not None:
            check_window(self.keep, self._window, "the schedule", "give more steps or less burn_in")

    @property
    def total_draws(self) -> int:
        return 0 if self.keep is None else self.keep.count(self._window)

    @property
    def _window(self) -> int:
        return max(self.steps - self.burn_in, 0)

    def tick(self, step: int) -> Tick:
        position, keep = step - self.burn_in + 1, self.keep
        return Tick(
            step=step,
            cycle=0,
            stage="sample" if position >= 1 else "burn-in",
            lr_scale=float(self.lr_scale),
            temperature_scale=float(self.temperature_scale),
            collect=keep is not None and position >= 1 and keep.contains(position, self._window),
        )
