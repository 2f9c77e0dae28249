"""Averages over draws that arrive a few at a time: nothing is kept of a draw but its share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from csgmcmc.posterior.predictive import ClassPredictive, GaussianPredictive, Predictive


class Moments:
    """Weighted mean and variance of what was added, without the cancellation of a plain sum."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def add(self, weights: Tensor, values: Tensor) -> None:
        """Add values of shape (draws, ...), each with its weight; the weights are not all 0."""
        weight = weights.sum().item()
        mean = weighted(weights, values) / weight
        squares = weighted(weights, (values - mean).square())
        if self._weight == 0:
            self._weight, self._mean, self._squares = weight, mean, squares
            return
        offset, total = mean - self._mean, self._weight + weight
        self._squares = self._squares + squares + offset.square() * (self._weight * weight / total)
        self._mean = self._mean + offset * (weight / total)
        self._weight = total

    @property
    def mean(self) -> Tensor:
        return torch.as_tensor(self._mean)

    @property
    def std(self) -> Tensor:
        return torch.as_tensor(self._squares / self._weight).sqrt()


class Average(ABC):
    """A prediction averaged over draws."""

    def __init__(self) -> None:
        self._members: list[Tensor] = []

    def add(self, weights: Tensor, outputs: Any, keep_members: bool = False) -> None:
        """Add the outputs of some draws, of shape (draws, batch, ...), with the draws' weights."""
        parts = self._read(outputs)
        if keep_members:
            self._members.append(self._prediction(parts))
        counts = weights > 0
        if not counts.all():  # what does not count must not, even if it is not a number
            weights, parts = weights[counts], tuple(part[counts] for part in parts)
        if len(weights):
            self._add(weights.to(parts[0]), *parts)

    @abstractmethod
    def _read(self, outputs: Any) -> tuple[Tensor, ...]:
        """What the outputs say, each of shape (draws, ...)."""

    @abstractmethod
    def _prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        """What is shown of members."""

    @abstractmethod
    def _add(self, weights: Tensor, *parts: Tensor) -> None:
        """Add what the outputs say, with weights above 0."""

    @abstractmethod
    def result(self) -> Predictive:
        """The average of all that was added, whose weights must sum to 1."""

    def _kept(self) -> Tensor | None:
        return torch.cat(self._members) if self._members else None


class ClassAverage(Average):
    """Averages probabilities, in log space.

    Args:
        log_probs: from outputs to log-probabilities, and the dimension of the classes in them.
        only_last: show only the last class: the yes of no and yes.
    """

    def __init__(
        self, log_probs: Callable[[Any], tuple[Tensor, int]], *, only_last: bool = False
    ) -> None:
        super().__init__()
        self._to_log_probs, self._only_last = log_probs, only_last
        self._class_dim = 0
        self._log_probs: Tensor | None = None
        self._expected_entropy: Tensor | float = 0.0
        self._moments = Moments()

    def _read(self, outputs: Any) -> tuple[Tensor, ...]:
        log_probs, self._class_dim = self._to_log_probs(outputs)
        return log_probs, log_probs.exp()

    def _prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        return self._shown(parts[1])

    def _add(self, weights: Tensor, *parts: Tensor) -> None:
        log_probs, probs = parts
        log_mean = (log_probs + aligned(weights.log(), log_probs)).logsumexp(0)
        known = self._log_probs
        self._log_probs = log_mean if known is None else torch.logaddexp(known, log_mean)
        entropies = _entropy(log_probs, probs, self._class_dim)
        self._expected_entropy = self._expected_entropy + weighted(weights, entropies)
        self._moments.add(weights, probs)

    def _shown(self, values: Tensor) -> Tensor:
        return values[..., -1] if self._only_last else values

    def result(self) -> ClassPredictive:
        assert self._log_probs is not None  # noqa: S101  (some draw has a weight above 0)
        log_probs = self._log_probs.clamp(max=0)  # rounding may rise above
        return ClassPredictive(
            log_probs=self._shown(log_probs),
            class_dim=None if self._only_last else self._class_dim - 1,
            entropy=_entropy(log_probs, log_probs.exp(), self._class_dim - 1),
            expected_entropy=torch.as_tensor(self._expected_entropy),
            spread=self._shown(self._moments.std),
            members=self._kept(),
        )


class GaussianAverage(Average):
    """Averages means and variances.

    Args:
        mean_and_variance: from outputs to those of each member.
    """

    def __init__(self, mean_and_variance: Callable[[Any], tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self._to_mean_and_variance = mean_and_variance
        self._moments = Moments()
        self._noise_variance: Tensor | float = 0.0
        self._expected_entropy: Tensor | float = 0.0

    def _read(self, outputs: Any) -> tuple[Tensor, ...]:
        return self._to_mean_and_variance(outputs)

    def _prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        return parts[0]

    def _add(self, weights: Tensor, *parts: Tensor) -> None:
        mean, variance = parts
        self._moments.add(weights, mean)
        self._noise_variance = self._noise_variance + weighted(weights, variance)
        entropies = gaussian_entropy(variance)
        self._expected_entropy = self._expected_entropy + weighted(weights, entropies)

    def result(self) -> GaussianPredictive:
        spread = self._moments.std
        noise_variance = torch.as_tensor(self._noise_variance)
        return GaussianPredictive(
            mean=self._moments.mean,
            noise_variance=noise_variance,
            entropy=gaussian_entropy(noise_variance + spread.square()),
            expected_entropy=torch.as_tensor(self._expected_entropy),
            spread=spread,
            members=self._kept(),
        )


def aligned(weights: Tensor, values: Tensor) -> Tensor:
    """`weights` (draws,) in the dimensions of `values` (draws, ...)."""
    return weights.reshape(-1, *[1] * (values.ndim - 1))


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted sum over draws."""
    return (weights @ values.flatten(1)).view(values.shape[1:])


def gaussian_entropy(variance: Tensor) -> Tensor:
    return 0.5 * (2 * math.pi * math.e * variance).log()


def _entropy(log_probs: Tensor, probs: Tensor, dim: int) -> Tensor:
    """In nats; a class of probability 0 adds nothing."""
    return -torch.where(probs == 0, 0, probs * log_probs).sum(dim)
