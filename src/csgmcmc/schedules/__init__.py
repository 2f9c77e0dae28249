"""The step size and temperature of each step, and which draws are kept."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.schedules.base import Schedule, Tick
from csgmcmc.schedules.constant import Constant
from csgmcmc.schedules.cyclical import Cyclical
from csgmcmc.schedules.decreasing import Decreasing
from csgmcmc.schedules.joined import Joined
from csgmcmc.schedules.keep import Keep
from csgmcmc.schedules.ramp import Ramp

__all__ = [
    "Constant",
    "Cyclical",
    "Decreasing",
    "Joined",
    "Keep",
    "Ramp",
    "Schedule",
    "Tick",
    "discover",
]


def discover() -> dict[str, type[Schedule]]:
    """Every schedule of this package by name, new files included."""
    return subclasses_in(sys.modules[__name__], Schedule)
