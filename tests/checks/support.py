"""What the tests of checks share: a stepper as small as a check can have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from csgmcmc import Chain, Draw, Schedule
from csgmcmc.checks import ParameterReport, parameter_reports
from csgmcmc.stepper import LoopWords


@dataclass
class Run:
    """A stepper, with the loss and the data of its run."""

    model: nn.Module
    loss: Callable[..., Any]
    data: Any
    sampler: torch.optim.Optimizer
    schedule: Schedule
    batches_per_step: float = 1.0
    chain_id: int = 0
    words: LoopWords | None = None


def reports(
    model: nn.Module, draws: Sequence[Draw], run: Run | Chain, **options: Any
) -> dict[str, ParameterReport]:
    return parameter_reports(model, draws, **of_run(run), **options)


def of_run(run: Run | Chain) -> dict[str, Any]:
    """The arguments of a check that are of the run."""
    stepper = run.stepper if isinstance(run, Chain) else run
    return {"stepper": stepper, "loss": run.loss, "data": run.data}
