"""What a running chain tells: moments to callbacks, and that it has diverged."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from csgmcmc.schedules import Tick

if TYPE_CHECKING:
    from csgmcmc.chain.loop import Chain


@dataclass(frozen=True)
class StepInfo:
    """What callbacks get: the step that was just taken.

    Attributes:
        chain: the chain itself.
        tick: what the schedule said of the step.
        loss: mean loss of the step, over stacked chains too.
        lr: step size of the first parameter group.
        temperature: temperature of the first parameter group.
    """

    chain: "Chain"
    tick: Tick
    loss: float
    lr: float
    temperature: float


Callback = Callable[[StepInfo], object]


def as_row(moment: StepInfo, draws: int) -> dict[str, Any]:
    """A moment as a line of the log."""
    tick = moment.tick
    return {
        "step": tick.step,
        "cycle": tick.cycle,
        "stage": tick.stage,
        "lr": moment.lr,
        "temperature": moment.temperature,
        "loss": moment.loss,
        "draws": draws,
    }
