"""Binary labels.

p(y = 1 | x) = sigmoid(logit)
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from csgmcmc.posterior.averages import Average, ClassAverage
from csgmcmc.posterior.likelihoods.base import (
    Likelihood,
    at_least_float32,
    check_logits,
    in_shape,
    per_point,
)


class Bernoulli(Likelihood):
    """Binary (one output) and multi-label (many outputs) classification.

    Outputs are logits of the positive class, targets 0 or 1 in the same shape, as for
    `binary_cross_entropy_with_logits`; targets of shape (batch,) also fit outputs of (batch, 1).
    """

    name = "bernoulli"

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_logits(outputs)
        labels = in_shape(targets, outputs.shape[1:])
        wrong = (labels != 0) & (labels != 1)
        if wrong.any():
            raise ValueError(f"targets must be 0 or 1, got {labels[wrong][0].item():g}")
        outputs = at_least_float32(outputs)
        labels = labels.to(outputs).expand_as(outputs)
        return per_point(-binary_cross_entropy_with_logits(outputs, labels, reduction="none"))

    def average(self) -> Average:
        return ClassAverage(_both_classes)


def _both_classes(logits: Any) -> tuple[Tensor, None]:
    """Log-probabilities (draws, 2, ...), of which only the positive class is reported."""
    check_logits(logits)
    logits = at_least_float32(logits)
    return torch.stack([logsigmoid(-logits), logsigmoid(logits)], dim=1), None
