"""When: how much of the step size and temperature each step uses, and which draws are kept."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.schedules.base import Schedule, Stage, Tick
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
]


def discover() -> dict[str, type[Schedule]]:
    """Every schedule of this package by name, those in newly added files included."""
    return subclasses_in(sys.modules[__name__], Schedule)
