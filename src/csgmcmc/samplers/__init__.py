"""Update rules, one per file, each a `torch.optim.Optimizer`."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.samplers.adam import AdamSGHMC
from csgmcmc.samplers.base import Group, Sampler, States
from csgmcmc.samplers.sghmc import SGHMC
from csgmcmc.samplers.sgld import SGLD
from csgmcmc.samplers.sgnht import SGNHT

__all__ = [
    "SGHMC",
    "SGLD",
    "SGNHT",
    "AdamSGHMC",
    "Group",
    "Sampler",
    "States",
    "discover",
]


def discover() -> dict[str, type[Sampler]]:
    """Every sampler of this package by name, new files included."""
    return subclasses_in(sys.modules[__name__], Sampler)
