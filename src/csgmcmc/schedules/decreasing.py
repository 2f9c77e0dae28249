"""The traditional schedule: a burn-in at the full step size, then polynomial decay.

    lr_k = lr_0 * (b + k)^-gamma,    k = 1, 2, ... after the burn-in

With gamma in (0.5, 1] the step sizes sum to infinity and their squares do not, which makes SGLD
consistent (Welling and Teh, "Bayesian Learning via Stochastic Gradient Langevin Dynamics", 2011).
"""

from dataclasses import InitVar, dataclass

from csgmcmc.arguments import check_count, check_number
from csgmcmc.schedules.base import Schedule, Tick
from csgmcmc.schedules.keep import Keep, check_window, resolve_keep


@dataclass(frozen=True)
class Decreasing(Schedule):
    """The full step size through the burn-in, then polynomial decay.

    Args:
        steps: all sampler steps, burn-in included.
        gamma: exponent of the decay, above 0.5 and at most 1.
        b: offset of the decay; 0 starts it at the full step size.
        burn_in: steps before the decay, with no draws.
        draws: number of draws, evenly spaced over the steps after the burn-in, the last at the end:
            short for `keep=Keep(per_cycle=draws)`.
        keep: which steps after the burn-in are kept. Give this or `draws`.
        burn_in_temperature: temperature scale during burn-in; 0 is optimisation.
        lr_scale: factor of the sampler's lr throughout, for use in a `Joined`.
    """

    steps: int
    gamma: float
    b: float = 0.0
    burn_in: int = 0
    draws: InitVar[int | None] = None
    keep: Keep = None  # pyright: ignore[reportAssignmentType]  (never after __post_init__)
    burn_in_temperature: float = 1.0
    lr_scale: float = 1.0

    def __post_init__(self, draws: int | None) -> None:
        object.__setattr__(self, "keep", resolve_keep(self.keep, draws, "draws"))
        self.make_plain()
        check_number("gamma", self.gamma, above=0.5, at_most=1)
        check_number("b", self.b, at_least=0)
        check_count("burn_in", self.burn_in, at_least=0)
        check_number("burn_in_temperature", self.burn_in_temperature, at_least=0)
        check_number("lr_scale", self.lr_scale, at_least=0)
        if self.burn_in >= self.steps:
            raise ValueError(
                f"burn_in={self.burn_in} leaves no step of steps={self.steps} to sample: lower it"
            )
        window = self.steps - self.burn_in
        check_window(self.keep, window, "the schedule", "give more steps or less burn_in")

    @property
    def total_draws(self) -> int:
        return self.keep.count(self.steps - self.burn_in)

    def tick(self, step: int) -> Tick:
        k = step - self.burn_in + 1
        sampling = k >= 1
        return Tick(
            step=step,
            cycle=0,
            stage="sample" if sampling else "burn-in",
            lr_scale=self.lr_scale * ((self.b + k) ** -self.gamma if sampling else 1.0),
            temperature_scale=1.0 if sampling else float(self.burn_in_temperature),
            collect=sampling and self.keep.contains(k, self.steps - self.burn_in),
        )
