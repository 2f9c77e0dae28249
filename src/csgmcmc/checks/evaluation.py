"""What a check judges: predictions of the draws, and the run that made them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from csgmcmc.arguments import shown
from csgmcmc.batches import Loss
from csgmcmc.checks.likelihood import Nll
from csgmcmc.checks.run import StepperLike
from csgmcmc.draws import Draw

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evaluation:
    """Predictions of every draw on held-out data, as plain arrays.

    Every pixel or label of a classifier is a point of its own in `probs`, `member_probs` and
    `labels`, and ignored targets are left out. They are None for regression; `means`, `ranks` and
    `targets` are None for classes.

    Attributes:
        weights: of the draws, summing to 1.
        chain_ids: chain of each draw.
        cycles: cycle of each draw; cycles of different chains have different numbers.
        log_scores: log-likelihood of each data point under each draw, (draws, data points).
        probs: averaged probabilities, (points, classes).
        member_probs: those of each draw, (draws, points, classes).
        labels: true classes, (points,).
        means: predicted means of each draw, (draws, numbers).
        ranks: probability below the target under the averaged prediction, (data points, outputs).
        targets: what the means predict, (numbers,).
    """

    weights: Array
    chain_ids: NDArray[np.int64]
    cycles: NDArray[np.int64]
    log_scores: Array
    probs: Array | None = None
    member_probs: Array | None = None
    labels: NDArray[np.int64] | None = None
    means: Array | None = None
    ranks: Array | None = None
    targets: Array | None = None

    @property
    def targets_per_point(self) -> float:
        """Mean number of targets of a data point: labels, pixels, tokens, or outputs."""
        targets = self.ranks if self.labels is None else self.labels
        return 1.0 if targets is None else max(targets.size, 1) / self.log_scores.shape[1]


@dataclass(frozen=True)
class TrainingRun:
    """What made the draws, for the question whether they were sampled.

    Attributes:
        stepper: of the run.
        loss: mean negative log-likelihood, as `Chain` takes it.
        data: the training data, as `Chain` takes them.
        model: the single network.
        draws: those that are checked.
        autocast: dtype of automatic mixed precision.
        nll: the likelihood that the loss is compared with.
    """

    stepper: StepperLike
    loss: Loss | None
    data: Iterable[Any] | None
    model: nn.Module
    draws: Sequence[Draw]
    autocast: torch.dtype | None = None
    nll: Nll | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.stepper, StepperLike):
            raise ValueError(
                "stepper must be a Stepper, or have its model, sampler, schedule, chain_id and "
                f"batches_per_step; got {shown(self.stepper)}"
            )
