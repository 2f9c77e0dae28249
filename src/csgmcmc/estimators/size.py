"""How large the networks of a table are, and how long they run."""

from typing import Any, NamedTuple, Self

from torch import nn

from csgmcmc.arguments import check_count, check_number
from csgmcmc.estimators.network import check_widths

CYCLES, MOST_CYCLES = 3, 20  # if the number of epochs is given, and if it is not
MOST_HELD_OUT = 4000  # rows of a chain: enough to weigh members by

# A rule of thumb for the seconds of a step on one core, so that a fit takes as many steps on any
# machine: multiplications and additions a second, and what a step costs however small it is.
RATE = 50e9
STEP = 1e-3


class Size(NamedTuple):
    """Sizes for a table, where the user gives none."""

    widths: list[int]
    batch_size: int
    folds: int  # of which each chain holds out one, of at most about `MOST_HELD_OUT` rows
    first: int  # steps of the first cycle
    seconds: float  # about, of all cycles
    epochs: float | None
    cycles: int | None

    @classmethod
    def of(cls, estimator: Any, rows: int) -> Self:
        """The sizes for `rows` rows: what `estimator` gives, or else the default."""
        widths, batch_size = estimator.hidden_layer_sizes, estimator.batch_size
        epochs, cycles = estimator.epochs, estimator.cycles
        width = 50 if rows < 1000 else 64 if rows < 5000 else 100
        batch_size = (256 if rows > 5000 else 128) if batch_size is None else batch_size
        return cls(
            [width] * (2 if rows < 1000 else 3) if widths is None else check_widths(widths),
            check_count("batch_size", batch_size, at_least=1),
            folds=5 if rows < 1000 else max(10, rows // MOST_HELD_OUT),
            first=min(max(rows, 400), 1000),
            seconds=min(max(5.0, 5 * (rows / 500) ** 3), 120.0),
            epochs=None if epochs is None else check_number("epochs", epochs, above=0),
            cycles=None if cycles is None else check_count("cycles", cycles, at_least=1, below=30),
        )

    @property
    def may_stop(self) -> bool:
        """Whether a cycle that does not help is the last."""
        return self.epochs is None and self.cycles is None

    def cycle_lengths(self, epoch: int) -> list[int]:
        """Steps of each cycle, at most, twice those before; `epoch` is the number in one."""
        cycles = self.cycles or (MOST_CYCLES if self.epochs is None else CYCLES)
        first = self.first
        if self.epochs is not None:
            first = max(1, round(self.epochs * epoch / (2**cycles - 1)))
        return [first * 2**cycle for cycle in range(cycles)]


def seconds_of_step(network: nn.Module, rows: int) -> float:
    """About how long a step takes, with the rows of all networks together."""
    return STEP + 6 * sum(param.numel() for param in network.parameters()) * rows / RATE
