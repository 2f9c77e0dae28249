"""Streaming averages over draws; individual draws are not stored."""

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.posterior.predictive import (
    ClassPredictive,
    Floats,
    Mixture,
    NumberPredictive,
    Predictive,
)

if TYPE_CHECKING:
    from csgmcmc.posterior.likelihoods.base import ClassLikelihood, NumberLikelihood


CLASSES_LAST = "if the classes come last, give likelihood=Categorical(dim=-1)"


class Average(ABC):
    """The prediction for one batch, averaged over draws with `weights` that sum to 1.

    Control flow in `add_parts` and `result` does not depend on values, so that `torch.export` can
    trace them.
    """

    mean: Tensor
    squares: Tensor
    """Weighted sum of squared deviations: the variance, once all draws are added."""

    def __init__(
        self,
        likelihood: Any,
        weights: Floats,
        targets: Tensor | None = None,
        *,
        keep_members: bool = False,
    ) -> None:
        self.likelihood, self.weights, self.targets = likelihood, weights, targets
        self.weight: Tensor | None = None  # sum of the weights of what was added
        self.sums: list[Tensor] = []  # weighted sums of other values
        self.kept: list[Tensor] | None = [] if keep_members else None

    def add(self, numbers: list[int], outputs: Any) -> None:
        """Add the outputs of some draws, of shape (draws, batch, ...), by the draws' numbers."""
        parts = self.read(outputs)
        if self.kept is not None:
            self.kept.append(self.member(outputs, parts))
        weights = self.weights[numbers]
        if np.count_nonzero(weights) < len(weights):  # a draw of weight 0 may hold NaNs
            counting = np.flatnonzero(weights).tolist()
            weights, parts = weights[counting], tuple(part[counting] for part in parts)
        if len(weights):
            like = parts[0]
            self.add_parts(torch.as_tensor(weights, dtype=like.dtype, device=like.device), *parts)

    @abstractmethod
    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        """The parts that are averaged, each of shape (draws, ...)."""

    @abstractmethod
    def member(self, outputs: Any, parts: tuple[Tensor, ...]) -> Tensor:
        """The predictions of some draws, to be kept."""

    @abstractmethod
    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        """Add parts with weights above 0."""

    def add_moments(self, weights: Tensor, values: Tensor, total: Tensor, *sums: Tensor) -> None:
        """Add to mean and variance of `values`, whose weighted sum is `total`, and to `sums`.

        Without the cancellation of plain sums of squares.
        """
        weight = weights.sum()
        mean = total / weight
        squares = weighted(weights, (values - mean).square_())
        if self.weight is None:
            self.weight, self.mean, self.squares, self.sums = weight, mean, squares, [*sums]
            return
        offset, both = mean - self.mean, self.weight + weight
        self.squares = self.squares + squares + offset.square() * (self.weight * weight / both)
        self.mean = self.mean + offset * (weight / both)
        self.weight = both
        self.sums = [a + b for a, b in zip(self.sums, sums, strict=True)]

    def members(self) -> Tensor | None:
        """The predictions of all draws, if they were kept."""
        return torch.cat(self.kept) if self.kept else None

    @abstractmethod
    def result(self) -> Predictive:
        """The average of all draws, in new tensors."""


class ClassAverage(Average):
    """Averages the probabilities that `likelihood` makes of outputs, in log space."""

    likelihood: "ClassLikelihood"
    _class_dim: int | None = None
    _log_probs: Tensor | None = None

    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        log_probs, self._class_dim = self.likelihood.log_probs(outputs)
        return log_probs, log_probs.exp()

    def member(self, outputs: Any, parts: tuple[Tensor, ...]) -> Tensor:
        return self._shown(parts[1], dim=1)

    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        log_probs, probs = parts
        # A product with a probability of 0 is 0, not NaN.
        finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)
        # A weighted logsumexp: -inf where a class is impossible under all draws.
        largest = finite.amax(0)
        log_mean = largest + weighted(weights, (log_probs - largest).exp_()).log()
        known = self._log_probs
        self._log_probs = log_mean if known is None else torch.logaddexp(known, log_mean)
        negative_entropy = weighted(weights, probs * finite).sum(0)
        self.add_moments(weights, probs, log_mean.exp(), negative_entropy)

    def _shown(self, values: Tensor, dim: int = 0) -> Tensor:
        """Values in the reported layout, from values with the classes in dimension `dim`."""
        if self._class_dim is None:
            return values.select(dim, -1)
        return values.movedim(dim, dim + self._class_dim).contiguous()

    def result(self) -> ClassPredictive:
        assert self._log_probs is not None  # noqa: S101  (some draw has a weight above 0)
        finite = self._log_probs.clamp(torch.finfo(self._log_probs.dtype).min, 0)
        log_probs = self._shown(self._log_probs).clamp(max=0)  # rounding may exceed 0
        entropy = -(self.mean * finite).sum(0)
        if self._class_dim is not None and self.targets is not None:
            shape = self.targets.shape
            if shape != entropy.shape and shape == log_probs.shape[:-1]:
                raise ValueError(
                    f"outputs of shape {tuple(log_probs.shape)} have the classes in dimension "
                    f"{self._class_dim}, but targets have shape {tuple(shape)}: {CLASSES_LAST}"
                )
        return ClassPredictive(
            log_probs=log_probs,
            class_dim=self._class_dim,
            entropy=entropy,
            expected_entropy=-self.sums[0],
            spread=self._shown(self.squares).sqrt(),
            members=self.members(),
            targets=self.targets,
        )


class NumberAverage(Average):
    """Averages the means and variances of the numbers that `likelihood` makes of outputs."""

    likelihood: "NumberLikelihood"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._parameters: list[dict[str, Tensor]] = []  # of the members that are kept

    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        return self.likelihood.mean_and_variance(outputs)

    def member(self, outputs: Any, parts: tuple[Tensor, ...]) -> Tensor:
        self._parameters.append(self.likelihood.parameters(outputs))
        return parts[0]

    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        mean, variance = parts
        sums = [weighted(weights, each) for each in (mean, variance, _gaussian_entropy(variance))]
        self.add_moments(weights, mean, *sums)

    def result(self) -> NumberPredictive:
        noise_variance, expected_entropy = self.sums
        mixture = None
        if self._parameters:
            names = self._parameters[0]
            joined = {name: torch.cat([one[name] for one in self._parameters]) for name in names}
            mixture = Mixture(self.likelihood.family, self.weights, joined)
        return NumberPredictive(
            mean=self.mean.clone(),
            noise_variance=noise_variance.clone(),
            entropy=_gaussian_entropy(noise_variance + self.squares),
            expected_entropy=expected_entropy.clone(),
            spread=self.squares.sqrt(),
            members=self.members(),
            targets=self.targets,
            mixture=mixture,
        )


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted sum over draws."""
    return torch.mv(values.flatten(1).t(), weights).view(values.shape[1:])


def _gaussian_entropy(variance: Tensor) -> Tensor:
    return 0.5 * (2 * math.pi * math.e * variance).log()
