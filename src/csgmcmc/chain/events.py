"""What a running chain tells its callbacks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from csgmcmc.arguments import check_function, check_items
from csgmcmc.schedules import Tick

if TYPE_CHECKING:
    from csgmcmc.chain.loop import Chain


@dataclass(frozen=True)
class StepInfo:
    """The step that was just taken.

    Attributes:
        chain: the chain itself.
        tick: what the schedule says of the step; `tick.collect` tells that a draw was kept.
        loss: mean loss of the step, over stacked chains too.
        lr: step size of the first parameter group.
        temperature: temperature of the first parameter group.
    """

    chain: "Chain"
    tick: Tick
    loss: float
    lr: float
    temperature: float

    @property
    def ends_cycle(self) -> bool:
        """Whether this was the last step of its cycle."""
        schedule, following = self.chain.schedule, self.tick.step + 1
        return following == schedule.steps or schedule(following).cycle != self.tick.cycle

    def as_row(self, draws: int) -> dict[str, Any]:
        """A line of the log, with the number of draws so far."""
        return {
            "step": self.tick.step,
            "cycle": self.tick.cycle,
            "stage": self.tick.stage,
            "lr": self.lr,
            "temperature": self.temperature,
            "loss": self.loss,
            "draws": draws,
        }


Callback = Callable[[StepInfo], object]


def as_callbacks(callbacks: Any) -> list[Callback]:
    """A list of functions, from one or several of them, or a `ValueError`."""
    if callable(callbacks):
        return [callbacks]
    found = check_items("callbacks", callbacks, "a function or a list of functions")
    return [check_function("each of callbacks", each) for each in found]
