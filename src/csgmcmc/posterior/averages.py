"""Streaming averages over draws; individual draws are not stored."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from csgmcmc.posterior.predictive import ClassPredictive, GaussianPredictive, Predictive


class Moments:
    """Streaming weighted mean and variance, without the cancellation of plain sums.

    No value is looked at, so that `torch.export` can trace it.
    """

    def __init__(self) -> None:
        self.weight: Tensor | None = None  # sum of the weights
        self.mean = self.squares = torch.zeros(())  # squares: weighted sum of squared deviations

    def add(self, weights: Tensor, values: Tensor) -> None:
        """Add values of shape (draws, ...), each with its weight; the weights are not all 0."""
        weight = weights.sum()
        mean = weighted(weights, values) / weight
        squares = weighted(weights, (values - mean).square())
        if self.weight is None:
            self.weight, self.mean, self.squares = weight, mean, squares
            return
        offset, total = mean - self.mean, self.weight + weight
        self.squares = self.squares + squares + offset.square() * (self.weight * weight / total)
        self.mean = self.mean + offset * (weight / total)
        self.weight = total

    @property
    def std(self) -> Tensor:
        assert self.weight is not None  # noqa: S101  (some draw has a weight above 0)
        return (self.squares / self.weight).sqrt()


class Average(ABC):
    """A prediction averaged over draws."""

    def __init__(self) -> None:
        self.moments = Moments()
        self.expected_entropy = torch.zeros(())
        self._members: list[Tensor] = []

    def add(self, weights: Tensor, outputs: Any, keep_members: bool = False) -> None:
        """Add the outputs of some draws, of shape (draws, batch, ...), with the draws' weights."""
        parts = self.read(outputs)
        if keep_members:
            self._members.append(self.prediction(parts))
        counts = weights > 0
        if not counts.all():  # so that NaNs of a draw of weight 0 do not matter
            weights, parts = weights[counts], tuple(part[counts] for part in parts)
        if len(weights):
            self.add_parts(weights.to(parts[0]), *parts)

    @abstractmethod
    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        """The parts that are averaged, each of shape (draws, ...)."""

    @abstractmethod
    def prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        """The predictions of the members."""

    @abstractmethod
    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        """Add parts with weights above 0."""

    @abstractmethod
    def result(self) -> Predictive:
        """The average of all that was added; the weights must sum to 1."""

    def members(self) -> Tensor | None:
        """The predictions of the members, if they were kept."""
        return torch.cat(self._members) if self._members else None


class ClassAverage(Average):
    """Averages probabilities, in log space.

    `log_probs` is from outputs to log-probabilities, and the dimension of the classes in them. With
    `only_last` only the last class is reported: the positive one of two.
    """

    def __init__(
        self, log_probs: Callable[[Any], tuple[Tensor, int]], *, only_last: bool = False
    ) -> None:
        super().__init__()
        self._to_log_probs, self._only_last = log_probs, only_last
        self._class_dim = 0
        self._log_probs: Tensor | None = None

    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        log_probs, self._class_dim = self._to_log_probs(outputs)
        return log_probs, log_probs.exp()

    def prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        return self._shown(parts[1])

    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        log_probs, probs = parts
        log_weights = weights.log().reshape(-1, *[1] * (log_probs.ndim - 1))
        log_mean = (log_probs + log_weights).logsumexp(0)
        known = self._log_probs
        self._log_probs = log_mean if known is None else torch.logaddexp(known, log_mean)
        entropies = _entropy(log_probs, probs, self._class_dim)
        self.expected_entropy = self.expected_entropy + weighted(weights, entropies)
        self.moments.add(weights, probs)

    def _shown(self, values: Tensor) -> Tensor:
        return values[..., -1] if self._only_last else values

    def result(self) -> ClassPredictive:
        assert self._log_probs is not None  # noqa: S101  (some draw has a weight above 0)
        log_probs = self._log_probs.clamp(max=0)  # rounding may exceed 0
        return ClassPredictive(
            log_probs=self._shown(log_probs),
            class_dim=None if self._only_last else self._class_dim - 1,
            entropy=_entropy(log_probs, log_probs.exp(), self._class_dim - 1),
            expected_entropy=self.expected_entropy,
            spread=self._shown(self.moments.std),
            members=self.members(),
        )


class GaussianAverage(Average):
    """Averages means and variances, into which `mean_and_variance` turns outputs."""

    def __init__(self, mean_and_variance: Callable[[Any], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._to_mean_and_variance = mean_and_variance
        self._noise_variance = torch.zeros(())

    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        return self._to_mean_and_variance(outputs)

    def prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        return parts[0]

    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        mean, variance = parts
        self.moments.add(weights, mean)
        self._noise_variance = self._noise_variance + weighted(weights, variance)
        self.expected_entropy = self.expected_entropy + weighted(
            weights, _gaussian_entropy(variance)
        )

    def result(self) -> GaussianPredictive:
        spread = self.moments.std
        return GaussianPredictive(
            mean=self.moments.mean,
            noise_variance=self._noise_variance,
            entropy=_gaussian_entropy(self._noise_variance + spread.square()),
            expected_entropy=self.expected_entropy,
            spread=spread,
            members=self.members(),
        )


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted sum over draws."""
    return (weights @ values.flatten(1)).view(values.shape[1:])


def _gaussian_entropy(variance: Tensor) -> Tensor:
    return 0.5 * (2 * math.pi * math.e * variance).log()


def _entropy(log_probs: Tensor, probs: Tensor, dim: int) -> Tensor:
    """In nats; a class of probability 0 adds nothing."""
    return -torch.where(probs == 0, 0, probs * log_probs).sum(dim)
