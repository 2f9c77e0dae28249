"""Likelihoods: from outputs of a model to predictions, and to log-likelihoods of targets.

Outputs have a leading dimension for draws: (draws, batch, ...).
"""

from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from csgmcmc.arguments import check_number, shown
from csgmcmc.posterior.averages import CLASSES_LAST, Average, ClassAverage, NumberAverage
from csgmcmc.posterior.predictive import Floats, scipy_family


class Likelihood(ABC):
    """The distribution of the targets given the outputs of a model."""

    name: ClassVar[str]
    """How `Posterior(likelihood=...)` refers to it; only needed in this package."""

    @abstractmethod
    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        """Log-likelihood of each data point under each draw, of shape (draws, batch).

        For each data point it is summed over its labels, pixels or tokens.
        """

    average_type: ClassVar[type[Average]]
    """How predictions are averaged over draws."""

    temperature: float | None = None
    """By which logits are divided; None for a likelihood that has no logits."""

    def scaled(self, temperature: float) -> Self:
        """The same likelihood with another temperature of its logits."""
        if self.temperature is None:
            raise ValueError(f"{self} has no logits that a temperature could scale")
        other = copy(self)
        other.temperature = check_number("temperature", temperature, above=0)
        return other

    def average(
        self, weights: Floats, targets: Tensor | None = None, *, keep_members: bool = False
    ) -> Average:
        """An empty average for one batch, for draws of these weights."""
        return self.average_type(self, weights, targets, keep_members=keep_members)

    def __repr__(self) -> str:
        options = [f"{name}={shown(value)}" for name, value in vars(self).items() if name[0] != "_"]
        return f"{type(self).__name__}({', '.join(options)})"


class ClassLikelihood(Likelihood):
    """A distribution of classes; targets are class numbers."""

    average_type = ClassAverage
    ignore_index: int | None = None
    """A target that does not count."""

    @abstractmethod
    def log_probs(self, outputs: Any) -> tuple[Tensor, int | None]:
        """Log-probabilities (draws, classes, ...), and the dimension of classes in a prediction.

        If that is None, only the last class is reported: the positive of two.
        """

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        log_probs, _ = self.log_probs(outputs)
        targets = in_shape(targets, log_probs.shape[2:], hint=f"; {CLASSES_LAST}")
        if targets.is_floating_point() or targets.is_complex():
            raise ValueError(
                f"targets must be class numbers, got {targets.dtype}: convert them with "
                "targets.long(), or use likelihood='bernoulli' or 'gaussian'"
            )
        counts = torch.full_like(targets, True, dtype=torch.bool)
        if self.ignore_index is not None:
            counts = targets != self.ignore_index
        classes = torch.where(counts, targets, 0).long()
        if classes.numel() and not 0 <= classes.min() <= classes.max() < log_probs.shape[1]:
            raise ValueError(
                f"targets must be from 0 to {log_probs.shape[1] - 1}, got "
                f"{int(classes.min())} to {int(classes.max())}"
            )
        index = classes.expand(len(log_probs), 1, *classes.shape)
        return per_point(log_probs.gather(1, index).squeeze(1) * counts)


class NumberLikelihood(Likelihood):
    """A distribution of numbers, one of the families of `scipy.stats`.

    Outputs are one tensor, or a pair of tensors if the model learns a second parameter. Targets
    have the shape of the first output; those of shape (batch,) also fit outputs of (batch, 1).
    """

    average_type = NumberAverage
    family: ClassVar[str]
    """Name of the distribution in `scipy.stats`."""

    @abstractmethod
    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        """Arguments of the distribution in `scipy.stats`, of shape (draws, batch, ...)."""

    @abstractmethod
    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        """Mean and variance of the target, of shape (draws, batch, ...)."""

    def cumulative(self, outputs: Any, targets: Tensor) -> Tensor:
        """Cumulative probability at each target, under each draw, on the CPU.

        For whole numbers it is a random value between the probabilities below and up to the target,
        the same for all draws: uniform if the forecast is right.
        """
        parameters = self.parameters(outputs)
        like = next(iter(parameters.values()))
        values = in_shape(targets, like.shape[1:]).cpu().double().numpy()
        arrays = {name: value.cpu().double().numpy() for name, value in parameters.items()}
        members = scipy_family(self.family)(**arrays)
        below = members.cdf(values)
        if hasattr(members, "pmf"):  # whole numbers
            between = np.random.default_rng(0).random(values.shape)
            below = below - between * members.pmf(values)
        return torch.from_numpy(below)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Widen half precision, for averages and logarithms."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def in_shape(targets: Tensor, shape: torch.Size, hint: str = "") -> Tensor:
    """Targets in the shape of the outputs: those of (batch,) also fit outputs of (batch, 1)."""
    if targets.ndim == 1 and (*targets.shape, 1) == tuple(shape):
        return targets.unsqueeze(-1)
    if targets.shape != shape:
        raise ValueError(
            f"targets of shape {tuple(targets.shape)} do not fit the outputs, which need targets "
            f"of shape {tuple(shape)}{hint if len(shape) > 1 else ''}"
        )
    return targets


def per_point(log_probs: Tensor) -> Tensor:
    """Sum over all dimensions but draws and batch, in double precision."""
    terms = log_probs.reshape(*log_probs.shape[:2], -1)
    terms = terms.cpu() if terms.device.type == "mps" else terms  # which has no double precision
    return terms.double().sum(-1)


def one_or_two(outputs: Any, known: float | Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    """Two parameters: both are outputs of the model, or the second is `known` by its `name`."""
    if isinstance(outputs, (tuple, list)):
        if len(outputs) != 2 or known is not None:
            raise ValueError(
                f"outputs must be one tensor with {name}= given, or pairs of two without; got "
                f"{len(outputs)} outputs and {name}={shown(known)}"
            )
        first, second = map(at_least_float32, outputs)
        # The second may be one for all targets of a draw, or one for each data point.
        if second.shape == first.shape[:-1]:  # as gaussian_nll_loss reads it
            second = second.unsqueeze(-1)
        missing = [1] * (first.ndim - second.ndim)
        return first, second.reshape(len(second), *missing, *second.shape[1:]).expand_as(first)
    if known is None:
        raise ValueError(
            f"the {name} of the noise is unknown: give the likelihood {name}=..., or let the model "
            f"return a tuple, as (mean, {name}); one tensor of two columns is not split"
        )
    first = at_least_float32(outputs)
    return first, torch.as_tensor(known, dtype=first.dtype, device=first.device).expand_as(first)
