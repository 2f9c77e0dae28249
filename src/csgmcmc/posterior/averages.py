"""Streaming averages over draws; individual draws are not stored."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.posterior.mixture import Mixture
from csgmcmc.posterior.predictive import (
    ClassPredictive,
    GaussianPredictive,
    NumberPredictive,
    Predictive,
)


class Moments:
    """Streaming weighted mean and variance, without the cancellation of plain sums.

    No value is looked at, so that `torch.export` can trace it.
    """

    def __init__(self) -> None:
        self.empty = True
        self.weight: Tensor  # sum of the weights
        self.mean: Tensor
        self.squares: Tensor
        """Weighted sum of squared deviations: the variance, if the weights sum to 1."""

    def add(self, weights: Tensor, values: Tensor, total: Tensor) -> None:
        """Add values of shape (draws, ...), each with its weight; the weights are not all 0.

        `total` is the weighted sum of the values.
        """
        weight = weights.sum()
        mean = total / weight
        self.merge(weight, mean, weighted(weights, (values - mean).square_()))

    def merge(self, weight: Tensor, mean: Tensor, squares: Tensor) -> None:
        """Add what other moments have found."""
        if self.empty:
            self.empty = False
            self.weight, self.mean, self.squares = weight, mean, squares
            return
        offset, both = mean - self.mean, self.weight + weight
        self.squares = self.squares + squares + offset.square() * (self.weight * weight / both)
        self.mean = self.mean + offset * (weight / both)
        self.weight = both

    def state(self) -> tuple[Tensor, ...]:
        """The arguments of `merge`; none, if nothing was added."""
        return () if self.empty else (self.weight, self.mean, self.squares)


State = dict[str, Any]
"""What an average has added up: tensors, and lists of them and plain values, by name."""


class Average(ABC):
    """A prediction averaged over draws."""

    def __init__(self) -> None:
        self.moments = Moments()
        self._members: list[Tensor] = []

    def add(self, weights: NDArray[np.float64], outputs: Any, keep_members: bool = False) -> None:
        """Add the outputs of some draws, of shape (draws, batch, ...), with the draws' weights."""
        parts = self.read(outputs)
        if keep_members:
            self._members.append(self.prediction(parts))
            self.keep(weights, outputs)
        if np.count_nonzero(weights) < len(weights):  # NaNs of a draw of weight 0 do not matter
            counting = np.flatnonzero(weights).tolist()
            weights, parts = weights[counting], tuple(part[counting] for part in parts)
        if len(weights):
            like = parts[0]
            self.add_parts(torch.as_tensor(weights, dtype=like.dtype, device=like.device), *parts)

    def keep(self, weights: NDArray[np.float64], outputs: Any) -> None:  # noqa: B027
        """Keep more of the members than their predictions: nothing, by default."""

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
        """The average of all that was added; the weights must sum to 1.

        Called outside inference mode, it makes tensors that a user may go on computing with: all of
        them are new.
        """

    def members(self) -> Tensor | None:
        """The predictions of the members, if they were kept."""
        return torch.cat(self._members) if self._members else None

    def state(self) -> State:
        """What was added so far, for the `merge` of an average of the same kind."""
        raise ValueError(
            f"likelihood averages with {type(self).__name__}, which has no state() and merge(): "
            "predict with share=None, or define both"
        )

    def merge(self, state: State) -> None:
        """Add what another average was given: its draws come after those of this one."""
        raise NotImplementedError

    def common_state(self) -> State:
        """The part of `state` that all kinds have."""
        return {"moments": self.moments.state(), "members": self._members}

    def merge_common(self, state: State) -> None:
        """Add the part that all kinds have."""
        if state["moments"]:
            self.moments.merge(*state["moments"])
        self._members += state["members"]


class ClassAverage(Average):
    """Averages probabilities, in log space.

    `log_probs` is from outputs to log-probabilities (draws, classes, ...), and the dimension of the
    classes in a prediction. If that is None, only the last class is reported: the positive of two.
    """

    def __init__(self, log_probs: Callable[[Any], tuple[Tensor, int | None]]) -> None:
        super().__init__()
        self._to_log_probs = log_probs
        self._class_dim: int | None = None
        self._log_probs: Tensor | None = None
        self._negative_entropy: Tensor | None = None  # mean of the members'

    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        log_probs, self._class_dim = self._to_log_probs(outputs)
        return log_probs, log_probs.exp()

    def prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        return self._shown(parts[1], dim=1)

    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        log_probs, probs = parts
        # A product with a probability of 0 is 0, not NaN.
        finite = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)
        # A weighted logsumexp: -inf where a class is impossible under all draws.
        largest = finite.amax(0)
        log_mean = largest + weighted(weights, (log_probs - largest).exp_()).log()
        self._add(log_mean, weighted(weights, probs * finite).sum(0))
        self.moments.add(weights, probs, log_mean.exp())

    def _add(self, log_probs: Tensor, negative_entropy: Tensor) -> None:
        known = self._log_probs
        self._log_probs = log_probs if known is None else torch.logaddexp(known, log_probs)
        self._negative_entropy = _plus(self._negative_entropy, negative_entropy)

    def state(self) -> State:
        sums = (self._log_probs, self._negative_entropy)
        return {**self.common_state(), "sums": sums, "class_dim": self._class_dim}

    def merge(self, state: State) -> None:
        self.merge_common(state)
        self._class_dim = state["class_dim"]
        if state["moments"]:  # a draw of weight above 0 was added
            self._add(*state["sums"])

    def _shown(self, values: Tensor, dim: int = 0) -> Tensor:
        """As it is reported, from values with the classes in dimension `dim`."""
        if self._class_dim is None:
            return values.select(dim, -1)
        return values.movedim(dim, dim + self._class_dim).contiguous()

    def result(self) -> ClassPredictive:
        assert self._log_probs is not None  # noqa: S101  (some draw has a weight above 0)
        assert self._negative_entropy is not None  # noqa: S101
        lowest = torch.finfo(self._log_probs.dtype).min
        log_probs = self._log_probs.clamp(lowest, 0)
        return ClassPredictive(
            log_probs=self._shown(self._log_probs).clamp(max=0),  # rounding may exceed 0
            class_dim=self._class_dim,
            entropy=-(self.moments.mean * log_probs).sum(0),
            expected_entropy=-self._negative_entropy,
            spread=self._shown(self.moments.squares).sqrt(),
            members=self.members(),
        )


class NumberAverage(Average):
    """Averages means and variances, into which `mean_and_variance` turns outputs.

    `parameters` turns them into arguments of the distribution `family` of `scipy.stats`.
    """

    def __init__(
        self,
        mean_and_variance: Callable[[Any], tuple[Tensor, Tensor]],
        family: str,
        parameters: Callable[[Any], dict[str, Tensor]],
    ) -> None:
        super().__init__()
        self._to_mean_and_variance = mean_and_variance
        self._family, self._to_parameters = family, parameters
        self._weights: list[NDArray[np.float64]] = []
        self._parameters: list[dict[str, Tensor]] = []
        self._noise_variance: Tensor | None = None
        self._expected_entropy: Tensor | None = None

    def keep(self, weights: NDArray[np.float64], outputs: Any) -> None:
        self._weights.append(weights)
        self._parameters.append(self._to_parameters(outputs))

    def _mixture(self) -> Mixture | None:
        if not self._weights:
            return None
        names = self._parameters[0]
        joined = {name: torch.cat([one[name] for one in self._parameters]) for name in names}
        return Mixture(self._family, np.concatenate(self._weights), joined)

    def read(self, outputs: Any) -> tuple[Tensor, ...]:
        return self._to_mean_and_variance(outputs)

    def prediction(self, parts: tuple[Tensor, ...]) -> Tensor:
        return parts[0]

    def add_parts(self, weights: Tensor, *parts: Tensor) -> None:
        mean, variance = parts
        self.moments.add(weights, mean, weighted(weights, mean))
        self._add(weighted(weights, variance), weighted(weights, _gaussian_entropy(variance)))

    def _add(self, noise_variance: Tensor, entropy: Tensor) -> None:
        self._noise_variance = _plus(self._noise_variance, noise_variance)
        self._expected_entropy = _plus(self._expected_entropy, entropy)

    def state(self) -> State:
        sums = (self._noise_variance, self._expected_entropy)
        kept = {"weights": self._weights, "parameters": self._parameters}
        return {**self.common_state(), "sums": sums, **kept}

    def merge(self, state: State) -> None:
        self.merge_common(state)
        self._weights += state["weights"]
        self._parameters += state["parameters"]
        if state["moments"]:  # a draw of weight above 0 was added
            self._add(*state["sums"])

    def result(self) -> NumberPredictive:
        assert self._noise_variance is not None  # noqa: S101  (some draw has a weight above 0)
        assert self._expected_entropy is not None  # noqa: S101
        kind = GaussianPredictive if self._family == "norm" else NumberPredictive
        return kind(
            mean=self.moments.mean.clone(),
            noise_variance=self._noise_variance.clone(),
            entropy=_gaussian_entropy(self._noise_variance + self.moments.squares),
            expected_entropy=self._expected_entropy.clone(),
            spread=self.moments.squares.sqrt(),
            members=self.members(),
            mixture=self._mixture(),
        )


def weighted(weights: Tensor, values: Tensor) -> Tensor:
    """The weighted sum over draws."""
    return torch.mv(values.flatten(1).t(), weights).view(values.shape[1:])


def _gaussian_entropy(variance: Tensor) -> Tensor:
    return 0.5 * (2 * math.pi * math.e * variance).log()


def _plus(total: Tensor | None, more: Tensor) -> Tensor:
    """A running sum, which starts with None."""
    return more if total is None else total + more
