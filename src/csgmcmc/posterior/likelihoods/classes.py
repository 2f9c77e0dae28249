"""Classes by logits: one of several, or yes and no for each of some labels.

categorical   p(y = k | x) = softmax(logits / T)_k
Bernoulli     p(y = 1 | x) = sigmoid(logit / T)

T is 1 unless the logits are scaled by a temperature (Guo et al., "On Calibration of Modern Neural
Networks", ICML 2017). It has nothing to do with the temperature of a sampler.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from csgmcmc.arguments import check_count, check_number
from csgmcmc.posterior.likelihoods.base import ClassLikelihood, at_least_float32, in_shape


class Categorical(ClassLikelihood):
    """One of several classes; outputs are logits, targets class numbers, as for `cross_entropy`.

    Args:
        dim: dimension of the classes in the outputs of one model: 1, as in `cross_entropy`, or -1
            if they come last.
        ignore_index: a target that is ignored, as in `cross_entropy`.
        temperature: T, by which the logits of every draw are divided.
    """

    name = "categorical"

    def __init__(self, dim: int = 1, ignore_index: int = -100, *, temperature: float = 1.0) -> None:
        self.dim = check_count("dim", dim, at_least=-64)  # as many as a tensor may have
        self.ignore_index = check_count("ignore_index", ignore_index, at_least=-(2**63))
        self.temperature = check_number("temperature", temperature, above=0)

    def log_probs(self, outputs: Any) -> tuple[Tensor, int]:
        logits = _logits(outputs, self.temperature)
        dim = self.dim if self.dim >= 0 else logits.ndim - 1 + self.dim
        if not 1 <= dim < logits.ndim - 1:
            raise ValueError(
                f"outputs of shape {tuple(logits.shape[1:])} have no classes in dimension "
                f"{self.dim}: for one logit a label, use likelihood='bernoulli'"
            )
        logits = logits.movedim(dim + 1, 1).contiguous()
        # torch's own log_softmax starts threads even for a few numbers, which then wait for a
        # busy core.
        shifted = logits - logits.amax(1, keepdim=True)
        return shifted.sub_(shifted.exp().sum(1, keepdim=True).log_()), dim


class Bernoulli(ClassLikelihood):
    """Binary (one output) and multi-label (many outputs) classification.

    Outputs are logits of the positive class, targets 0 or 1 in the same shape, as for
    `binary_cross_entropy_with_logits`; targets of shape (batch,) also fit outputs of (batch, 1).

    Args:
        temperature: T, by which the logits of every draw are divided.
    """

    name = "bernoulli"

    def __init__(self, *, temperature: float = 1.0) -> None:
        self.temperature = check_number("temperature", temperature, above=0)

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        labels = in_shape(targets, _logits(outputs, None).shape[1:])
        wrong = (labels != 0) & (labels != 1)
        if wrong.any():
            raise ValueError(f"targets must be 0 or 1, got {labels[wrong][0].item():g}")
        return super().log_prob(outputs, labels.long())

    def log_probs(self, outputs: Any) -> tuple[Tensor, None]:
        logits = _logits(outputs, self.temperature)
        return torch.stack([logsigmoid(-logits), logsigmoid(logits)], dim=1), None


def _logits(outputs: Any, temperature: float | None) -> Tensor:
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"outputs must be a tensor of logits, got a {type(outputs).__name__}: select it, as in "
            "forward=lambda model, inputs: model(inputs).logits"
        )
    logits = at_least_float32(outputs)
    return logits if temperature is None or temperature == 1 else logits / temperature
