"""Likelihoods: from the outputs of a model to predictions, and log-likelihoods of targets.

Outputs have a leading dimension for draws: (draws, batch, ...).
"""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from csgmcmc.arguments import check_count, shown
from csgmcmc.posterior.averages import Average, ClassAverage


class Likelihood(ABC):
    """The distribution of the targets given the outputs of a model."""

    @abstractmethod
    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        """Log-likelihood of each data point under each draw, of shape (draws, batch).

        That of a data point is the sum over its labels, pixels or tokens.
        """

    @abstractmethod
    def average(self) -> Average:
        """An empty average, to which outputs of draws are added."""

    def __repr__(self) -> str:
        options = [f"{name}={shown(value)}" for name, value in vars(self).items() if name[0] != "_"]
        return f"{type(self).__name__}({', '.join(options)})"


class Categorical(Likelihood):
    """One of several classes; outputs are logits, targets class numbers, as for `cross_entropy`.

    Args:
        dim: dimension of the classes in the outputs of one model: 1, as in `cross_entropy`, or -1
            if they come last.
        ignore_index: a target that is ignored, as in `cross_entropy`.
    """

    def __init__(self, dim: int = 1, ignore_index: int = -100) -> None:
        self.dim = check_count("dim", dim, at_least=-64, below=64)  # as many as a tensor may have
        self.ignore_index = check_count(
            "ignore_index", ignore_index, at_least=-(2**63), below=2**63
        )

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        log_probs, _ = self._log_probs(outputs)
        where = f"outputs of shape {tuple(outputs.shape[1:])} with classes in dimension {self.dim}"
        _check_shape(targets, log_probs.shape[2:], where)
        return log_probs_of(log_probs, targets, self.ignore_index)

    def average(self) -> Average:
        return ClassAverage(self._log_probs)

    def _log_probs(self, outputs: Tensor) -> tuple[Tensor, int]:
        """Log-probabilities (draws, classes, ...), and the dimension of the classes in a batch."""
        check_logits(outputs)
        dim = self.dim if self.dim >= 0 else outputs.ndim - 1 + self.dim
        if not 1 <= dim < outputs.ndim - 1:
            raise ValueError(
                f"outputs of shape {tuple(outputs.shape[1:])} have no classes in dimension "
                f"{self.dim}: for one logit a label, say likelihood='bernoulli'"
            )
        return _log_softmax(at_least_float32(outputs).movedim(dim + 1, 1)), dim


class Bernoulli(Likelihood):
    """Binary (one output) and multi-label (many outputs) classification.

    Outputs are logits of the positive class, targets 0 or 1 in the same shape, as for
    `binary_cross_entropy_with_logits`; targets of shape (batch,) fit outputs of (batch, 1), too.
    """

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        check_logits(outputs)
        where = f"outputs of shape {tuple(outputs.shape[1:])}"
        wanted = in_shape(targets, outputs.shape[1:], where)
        unlike = (wanted != 0) & (wanted != 1)
        if unlike.any():
            raise ValueError(f"targets must be 0 or 1, got {wanted[unlike][0].item():g}")
        outputs = at_least_float32(outputs)
        wanted = wanted.to(outputs).expand_as(outputs)
        return per_point(-binary_cross_entropy_with_logits(outputs, wanted, reduction="none"))

    def average(self) -> Average:
        return ClassAverage(_both_classes)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Widen half precision, for averages and logarithms."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def check_logits(outputs: Any) -> None:
    """Raise if outputs are not one tensor."""
    if not isinstance(outputs, Tensor):
        raise ValueError(
            f"outputs must be a tensor of logits, got a {type(outputs).__name__}: select it, as in "
            "forward=lambda model, inputs: model(inputs).logits"
        )


def _check_shape(targets: Tensor, shape: torch.Size, what: str) -> None:
    if targets.shape != shape:
        raise ValueError(f"targets of shape {tuple(targets.shape)} do not fit {what}")


def in_shape(targets: Tensor, shape: torch.Size, what: str) -> Tensor:
    """Targets in the shape of the outputs: those of (batch,) fit outputs of (batch, 1), too."""
    if (*targets.shape, 1) == tuple(shape) and targets.ndim == 1:
        return targets.unsqueeze(-1)
    _check_shape(targets, shape, what)
    return targets


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities of logits (draws, classes, ...), contiguous.

    torch's own starts threads even for a few numbers, which then wait for a busy core, and it is
    several times slower if classes come last and are few.
    """
    logits = logits.contiguous()
    shifted = logits - logits.amax(1, keepdim=True)
    return shifted.sub_(shifted.exp().sum(1, keepdim=True).log_())


def _both_classes(logits: Any) -> tuple[Tensor, None]:
    """Log-probabilities (draws, 2, ...), of which only the positive class is reported."""
    check_logits(logits)
    logits = at_least_float32(logits)
    return torch.stack([logsigmoid(-logits), logsigmoid(logits)], dim=1), None


def per_point(log_probs: Tensor) -> Tensor:
    """Sum over all dimensions but draws and batch, in double precision."""
    return log_probs.reshape(*log_probs.shape[:2], -1).double().sum(-1)


def log_probs_of(log_probs: Tensor, targets: Tensor, ignored: int | None = None) -> Tensor:
    """Of class numbers, from log-probabilities (draws, classes, ...): of shape (draws, batch)."""
    if targets.is_floating_point() or targets.is_complex():
        raise ValueError(
            f"targets must be class numbers, got {targets.dtype}: convert them with "
            "targets.long(), or say likelihood='bernoulli' or 'gaussian'"
        )
    counts = torch.ones_like(targets, dtype=torch.bool) if ignored is None else targets != ignored
    classes = torch.where(counts, targets, 0).long()
    if classes.numel() and not 0 <= classes.min() <= classes.max() < log_probs.shape[1]:
        raise ValueError(
            f"targets must be from 0 to {log_probs.shape[1] - 1}, got "
            f"{int(classes.min())} to {int(classes.max())}"
        )
    index = classes.expand(len(log_probs), 1, *classes.shape)
    return per_point(log_probs.gather(1, index).squeeze(1) * counts)
