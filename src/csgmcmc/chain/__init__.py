"""The only loop, and what it needs to stop anywhere and go on exactly."""

from csgmcmc.chain.distributed import ProcessLayout, init_distributed, shutdown_distributed
from csgmcmc.chain.events import StepInfo
from csgmcmc.chain.loop import Chain
from csgmcmc.chain.scalars import read_scalars
from csgmcmc.errors import DivergedError, SettingsMismatchError

__all__ = [
    "Chain",
    "DivergedError",
    "ProcessLayout",
    "SettingsMismatchError",
    "StepInfo",
    "init_distributed",
    "read_scalars",
    "shutdown_distributed",
]
