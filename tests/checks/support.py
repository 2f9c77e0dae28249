"""Helpers for the tests of checks: runs that have taken no step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from csgmcmc import Chain, Draw, Posterior, Schedule, Stepper
from csgmcmc.checks import ParameterReport
from csgmcmc.checks.parameter_temperatures import parameter_reports
from csgmcmc.posterior import Gaussian


@dataclass
class Run:
    """A stepper, with the loss and the data of its run."""

    stepper: Stepper
    loss: Callable[..., Any]
    data: Any


def make_run(
    model: nn.Module,
    loss: Callable[..., Any],
    data: Any,
    sampler: torch.optim.Optimizer,
    schedule: Schedule,
) -> Run:
    return Run(Stepper(model, sampler, schedule), loss, data)


def reports(
    model: nn.Module, draws: Sequence[Draw], run: Run | Chain
) -> dict[str, ParameterReport]:
    posterior = Posterior(model, draws, likelihood=Gaussian(1.0), progress=False)
    assert run.loss is not None
    assert run.data is not None
    return parameter_reports(posterior, run.stepper, run.loss, run.data)[0]
