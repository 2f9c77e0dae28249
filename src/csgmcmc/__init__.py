"""Cyclical stochastic-gradient MCMC for PyTorch: a training loop that samples the posterior."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from csgmcmc.chain import Chain
from csgmcmc.distributed import ProcessLayout, init_distributed, shutdown_distributed
from csgmcmc.draws import Draw, Draws, DrawStore, MemoryDraws
from csgmcmc.errors import DivergedError
from csgmcmc.posterior import Posterior, Predictive, refresh_batchnorm
from csgmcmc.recipe import Recipe
from csgmcmc.samplers import PSGLD, SGHMC, SGLD, SGNHT, Sampler
from csgmcmc.schedules import Constant, Cyclical, Decreasing, Joined, Ramp, Schedule, Tick
from csgmcmc.stacked import Stack, stack
from csgmcmc.stepper import Stepper
from csgmcmc.task import Task
from csgmcmc.trained import posterior_from_trained

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
    "DivergedError",
    "Draw",
    "DrawStore",
    "Draws",
    "Joined",
    "MemoryDraws",
    "Posterior",
    "Predictive",
    "ProcessLayout",
    "Ramp",
    "Recipe",
    "Sampler",
    "Schedule",
    "Stack",
    "Stepper",
    "Task",
    "Tick",
    "__version__",
    "init_distributed",
    "posterior_from_trained",
    "refresh_batchnorm",
    "shutdown_distributed",
    "stack",
]

if not TYPE_CHECKING:  # else every misspelt name would pass

    def __getattr__(name: str) -> Any:
        """Rooms that are slow to import, on first use: `csgmcmc.tuning.suggest_lr`."""
        if name in ("diagnostics", "estimators", "planning", "targets", "tuning"):
            return import_module(f"csgmcmc.{name}")
        raise AttributeError(f"module 'csgmcmc' has no attribute {name!r}")
