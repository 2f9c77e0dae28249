"""Cyclical stochastic-gradient MCMC for PyTorch: a training loop that samples the posterior."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from csgmcmc.distributed import ProcessLayout, init_distributed, shutdown_distributed
from csgmcmc.draws import Draw, DrawStore, MemoryDraws
from csgmcmc.errors import DivergedError
from csgmcmc.loop import Chain, Stepper
from csgmcmc.lr_range import suggest_lr
from csgmcmc.posterior import Posterior
from csgmcmc.samplers import SGHMC, SGLD, AdamSGHMC, Sampler
from csgmcmc.schedules import Constant, Cyclical, Decreasing, Joined, Keep, Ramp, Schedule, Tick
from csgmcmc.stacked import Stack, stack
from csgmcmc.trained import posterior_from_trained

__version__ = version("csgmcmc")

__all__ = [
    "SGHMC",
    "SGLD",
    "AdamSGHMC",
    "Chain",
    "Constant",
    "Cyclical",
    "Decreasing",
    "DivergedError",
    "Draw",
    "DrawStore",
    "Joined",
    "Keep",
    "MemoryDraws",
    "Posterior",
    "ProcessLayout",
    "Ramp",
    "Sampler",
    "Schedule",
    "Stack",
    "Stepper",
    "Tick",
    "__version__",
    "init_distributed",
    "posterior_from_trained",
    "shutdown_distributed",
    "stack",
    "suggest_lr",
]

if not TYPE_CHECKING:  # else every misspelt name would pass

    def __getattr__(name: str) -> Any:
        """Import packages that are slow to import on first use."""
        if name in ("checks", "diagnostics", "estimators", "report"):
            return import_module(f"csgmcmc.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
