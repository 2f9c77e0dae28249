"""How: one update rule a file, each a `torch.optim.Optimizer`."""

import sys

from csgmcmc.discovery import subclasses_in
from csgmcmc.samplers.base import Sampler
from csgmcmc.samplers.noise import Noise
from csgmcmc.samplers.prior import Prior
from csgmcmc.samplers.psgld import PSGLD
from csgmcmc.samplers.sghmc import SGHMC
from csgmcmc.samplers.sgld import SGLD
from csgmcmc.samplers.sgnht import SGNHT

__all__ = ["PSGLD", "SGHMC", "SGLD", "SGNHT", "Noise", "Prior", "Sampler", "discover"]


def discover() -> dict[str, type[Sampler]]:
    """Every sampler of this package by name, those in newly added files included."""
    return subclasses_in(sys.modules[__name__], Sampler)
