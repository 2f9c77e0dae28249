"""Cyclical stochastic-gradient MCMC for PyTorch: a training loop that samples the posterior."""

from importlib.metadata import version

from csgmcmc.chain import Chain, Diverged, leave, place, stack
from csgmcmc.draws import Draw, Draws, DrawStore, MemoryDraws
from csgmcmc.posterior import Posterior, Predictive, refresh_batchnorm
from csgmcmc.recipe import Recipe
from csgmcmc.samplers import PSGLD, SGHMC, SGLD, SGNHT, Sampler
from csgmcmc.schedules import Constant, Cyclical, Decreasing, Ramp, Schedule, Sequence, Tick
from csgmcmc.task import Task

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
    "Recipe",
    "Sampler",
    "Schedule",
    "Sequence",
    "Task",
    "Tick",
    "__version__",
    "leave",
    "place",
    "refresh_batchnorm",
    "stack",
]
