"""Cyclical stochastic-gradient MCMC for PyTorch: a training loop that samples the posterior."""

from importlib.metadata import version

from csgmcmc.chain import Chain, Diverged, place, stack
from csgmcmc.draws import Draw, Draws, DrawStore, MemoryDraws
from csgmcmc.posterior import Posterior, Predictive, refresh_batchnorm
from csgmcmc.samplers import PSGLD, SGHMC, SGLD, SGNHT, Sampler
from csgmcmc.schedules import Constant, Cyclical, Decreasing, Ramp, Schedule, Sequence, Tick

__version__ = version("csgmcmc")

__all__ = [
    "PSGLD",
    "SGHMC",
    "SGLD",
    "SGNHT",
    "Chain",
    "Constant",
    "Cyclical",
    "Decreasing",
    "Diverged",
    "Draw",
    "DrawStore",
    "Draws",
    "MemoryDraws",
    "Posterior",
    "Predictive",
    "Ramp",
    "Sampler",
    "Schedule",
    "Sequence",
    "Tick",
    "__version__",
    "place",
    "refresh_batchnorm",
    "stack",
]
