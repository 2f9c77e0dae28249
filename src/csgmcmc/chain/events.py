"""What a running chain tells: moments to callbacks, and that it has diverged."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from csgmcmc.schedules import Tick

if TYPE_CHECKING:
    from csgmcmc.chain.loop import Chain


@dataclass(frozen=True)
class Moment:
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


Callback = Callable[[Moment], object]


class Diverged(RuntimeError):  # noqa: N818  (it is what users look for)
    """The loss or a weight is no longer finite.

    Attributes:
        tick: where in the run.
        lr: step size at that step.
        chains: numbers of the chains that diverged.
    """

    def __init__(
        self, what: str, tick: Tick, lr: float, chains: list[int], checkpoint: Path | None
    ) -> None:
        self.tick, self.lr, self.chains = tick, lr, chains
        which = f"chain {', '.join(map(str, chains))}"
        good = f" The last good checkpoint is {checkpoint}." if checkpoint else ""
        super().__init__(
            f"{which} diverged: {what} is not finite at step {tick.step} (cycle {tick.cycle}, "
            f"{tick.stage}, lr {lr:.3g}). Lower lr, or give clip=, and start again; if it happens "
            "in exploration, a lower exploration_temperature may do. "
            f"All draws kept so far can be read.{good}"
        )


def as_row(moment: Moment, draws: int) -> dict[str, Any]:
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
