"""The step size and temperature of each step, and which draws are kept."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.schedules.base import Schedule, Stage, Tick, options_at
from csgmcmc.schedules.constant import Constant
from csgmcmc.schedules.cyclical import Cyclical
from csgmcmc.schedules.decreasing import Decreasing
from csgmcmc.schedules.joined import Joined
from csgmcmc.schedules.ramp import Ramp

__all__ = [
    "Constant",
    "Cyclical",
    "Decreasing",
    "Joined",
    "Ramp",
    "Schedule",
    "Stage",
    "Tick",
    "discover",
    "options_at",
]


def discover() -> dict[str, type[Schedule]]:
    """Every schedule of this package by name, newly added files included."""
    return subclasses_in(sys.modules[__name__], Schedule)
