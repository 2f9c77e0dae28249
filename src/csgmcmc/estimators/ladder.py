"""The prior's scale and the temperature of each cycle."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from csgmcmc.arguments import check_count, check_number, shown

MOST_CYCLES = 10_000


class Rung(NamedTuple):
    """What one cycle samples: the prior N(0, prior_scale^2) of every weight, at a temperature."""

    prior_scale: float
    temperature: float


@dataclass(frozen=True)
class Ladder:
    """The rungs of a fit, one for each cycle."""

    rungs: tuple[Rung, ...]

    @classmethod
    def of(cls, prior_scale: Any, temperature: Any, cycles: int) -> "Ladder":
        """From narrow to wide at the first temperature; the last cycle, at the second, is wide.

        A single number is that of all cycles.
        """
        count = check_count("cycles", cycles, at_least=1, below=MOST_CYCLES)
        narrow, wide = _pair("prior_scale", prior_scale, at_least=1e-10, at_most=1e10)
        usual, last = _pair("temperature", temperature, at_least=0)
        if narrow > wide:
            raise ValueError(f"prior_scale must go from narrow to wide, got {shown(prior_scale)}")
        if count == 1 and (narrow, usual) != (wide, last):
            raise ValueError(
                "cycles=1 has one prior_scale and one temperature, got "
                f"prior_scale={shown(prior_scale)}, temperature={shown(temperature)}"
            )
        climbing = count if usual == last else count - 1
        scales = np.geomspace(narrow, wide, climbing).tolist() if climbing > 1 else [wide]
        rungs = [Rung(scale, usual) for scale in scales]
        return cls(tuple(rungs if usual == last else [*rungs, Rung(wide, last)]))


def _pair(name: str, value: Any, **bounds: float) -> tuple[float, float]:
    """A pair of numbers; a single one is both."""
    is_single = isinstance(value, np.ndarray) and value.ndim == 0
    if is_single or not isinstance(value, (tuple, list, np.ndarray)):
        number = check_number(name, value, **bounds)
        return number, number
    if len(value) != 2:
        raise ValueError(f"{name} must be a number or a pair of numbers, got {shown(value)}")
    first, second = (check_number(name, each, **bounds) for each in value)
    return first, second
