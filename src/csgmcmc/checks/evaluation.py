"""One pass over held-out data that collects the predictions of every draw."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.loaders import is_pair
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.averages import weighted
from csgmcmc.posterior.likelihoods.base import NumberLikelihood
from csgmcmc.posterior.likelihoods.classes import Categorical
from csgmcmc.posterior.passes import Scores, over_draws
from csgmcmc.posterior.predictive import ClassPredictive

Array = NDArray[np.float64]
MAX_INPUTS = 2**22  # numbers of a table of inputs that are kept


@dataclass(frozen=True)
class Evaluation:
    """Predictions of every draw on held-out data, as plain arrays.

    Every pixel or label of a classifier is a separate point in `members`, `targets` and `probs`,
    and ignored targets are left out.

    Attributes:
        weights: weight of each draw; they sum to 1.
        chain_ids: chain of each draw.
        cycles: cycle of each draw; cycles of different chains have different numbers.
        log_scores: log-likelihood of each data point under each draw, (draws, data points).
        members: predictions of each draw: probabilities of classes, (draws, points, classes), or
            means of numbers, (draws, numbers).
        targets: true classes, (points,), or values, (numbers,).
        probs: averaged probabilities, (points, classes); None for numbers.
        ranks: probability below the target under the averaged prediction, (data points, outputs);
            None for classes.
        point_of_target: data point of each target.
        inputs: a table of inputs, (data points, features); None where they are something else.
        input_scale: root mean square of the inputs; None where they are not one tensor of floats.
        returns_probs: whether all outputs are probabilities, where logits are expected.
    """

    weights: Array
    chain_ids: NDArray[np.int64]
    cycles: NDArray[np.int64]
    log_scores: Array
    members: Array
    targets: NDArray[Any]
    probs: Array | None = None
    ranks: Array | None = None
    point_of_target: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    inputs: Array | None = None
    input_scale: float | None = None
    returns_probs: bool = False

    @property
    def targets_per_point(self) -> float:
        """Mean number of targets of a data point: labels, pixels, tokens, or outputs."""
        return max(self.targets.size, 1) / self.log_scores.shape[1]

    @property
    def nll_of_draws(self) -> Array:
        """NLL per target of each draw alone."""
        return -self.log_scores.mean(axis=1) / self.targets_per_point

    @property
    def average_scores(self) -> Array:
        """Log-likelihood of each data point under the weighted average."""
        with np.errstate(divide="ignore"):
            return np.logaddexp.reduce(self.log_scores + np.log(self.weights)[:, None])

    def nll_by_draws(self, weights: Array) -> Array:
        """NLL per target of the weighted average of the first 1, 2, ... draws.

        It is nan as long as all weights are 0.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = self.log_scores + np.log(weights)[:, None]
            means = np.logaddexp.accumulate(scores) - np.log(weights.cumsum())[:, None]
        return -means.mean(axis=1) / self.targets_per_point

    def nll(self, weights: Array) -> float:
        """NLL per target of the weighted average of all draws."""
        return float(self.nll_by_draws(weights)[-1])

    def error(self, prediction: Array) -> float:
        """Share of wrong classes, or the RMSE of numbers, of one prediction."""
        if self.probs is not None:
            return float((prediction.argmax(axis=1) != self.targets).mean())
        return float(np.sqrt(np.square(prediction - self.targets).mean()))

    def error_by_draws(self) -> Array:
        """Error of the average of the first 1, 2, ... draws; nan as long as all weights are 0."""
        total, found = np.zeros(self.members.shape[1:]), []
        sums = self.weights.cumsum()
        for member, weight, so_far in zip(self.members, self.weights, sums, strict=True):
            total += weight * member
            found.append(self.error(total / so_far) if so_far > 0 else np.nan)
        return np.array(found)


class _Batch:
    """What is collected for one batch."""

    def __init__(self, posterior: Posterior, targets: Tensor | None) -> None:
        self.likelihood, self.weights = posterior.likelihood, posterior.weights
        self.scores = Scores(self.likelihood, targets)
        self.average = self.likelihood.average(self.weights, targets, keep_members=True)
        self.ranks: Any = 0.0  # under the averaged prediction, (points, ...)
        self.are_probs = isinstance(self.likelihood, Categorical)

    def add(self, numbers: list[int], outputs: Any) -> None:
        self.scores.add(numbers, outputs)
        self.average.add(numbers, outputs)
        self.are_probs = self.are_probs and _are_probs(outputs, self.likelihood)
        if isinstance(self.likelihood, NumberLikelihood):
            below = self.likelihood.cumulative(outputs, self.scores.targets)
            weights = torch.as_tensor(self.weights[numbers], device=below.device)
            self.ranks = self.ranks + weighted(weights, below)


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()


def evaluate(posterior: Posterior, loader: Iterable[Any]) -> Evaluation:
    """Collect the predictions of every draw for the data of `loader`, in one pass over it."""
    likelihood = posterior.likelihood
    inputs = _Inputs()

    def split(batch: Any) -> Any:
        if is_pair(found := posterior.split(batch)):
            inputs.add(found[0])
        return found

    collected = over_draws(posterior, loader, "evaluating", partial(_Batch, posterior), split=split)
    batches = list(collected)
    predictions = [batch.average.result() for batch in batches]
    predictive: Any = type(predictions[0]).joined(predictions)
    if isinstance(predictive, ClassPredictive):
        labels = predictive.labels_numpy()
        counts, per_point = np.full(labels.shape, True), labels.size // len(predictive.targets)
        if isinstance(likelihood, Categorical):
            counts = labels != likelihood.ignore_index
        members = predictive.member_probs_numpy()[:, counts]
        found: dict[str, Any] = {"targets": labels[counts]}
        found["probs"] = predictive.probs_numpy()[counts]
        found["point_of_target"] = np.repeat(np.arange(len(predictive.targets)), per_point)[counts]
        if not (np.isfinite(found["probs"]).all() and np.isfinite(members).all()):
            raise ValueError(
                f"loader gives predictions that are not finite{inputs.describe_nan()}: remove or "
                "fill such values, in the training data too"
            )
    else:
        members = predictive.members.double().flatten(1).cpu().numpy()
        values = predictive.targets.double().flatten().cpu().numpy()
        below = [batch.ranks.reshape(len(batch.ranks), -1).cpu().numpy() for batch in batches]
        found = {"targets": values, "ranks": np.concatenate(below)}
        points = np.arange(len(found["ranks"]))
        found["point_of_target"] = np.repeat(points, values.size // len(points))
    return Evaluation(
        weights=posterior.weights,
        chain_ids=np.array([draw.chain_id for draw in posterior.draws]),
        cycles=posterior.cycles,
        log_scores=torch.cat([batch.scores.result() for batch in batches], dim=1).cpu().numpy(),
        members=members,
        inputs=inputs.table(),
        input_scale=inputs.scale,
        returns_probs=all(batch.are_probs for batch in batches),
        **found,
    )


class _Inputs:
    """What is kept of the inputs: their scale, and a table of them if they are one."""

    def __init__(self) -> None:
        self._rows: list[Tensor] | None = []
        self._squares, self._count, self._not_finite = 0.0, 0, 0

    def add(self, inputs: Any) -> None:
        if not (isinstance(inputs, Tensor) and inputs.is_floating_point()):
            self._rows = None
            return
        finite = inputs[inputs.isfinite()].double()
        self._squares += finite.square().sum().item()
        self._count += finite.numel()
        self._not_finite += inputs.numel() - finite.numel()
        is_table = inputs.ndim == 2 and self._count <= MAX_INPUTS
        self._rows = [*self._rows, inputs] if is_table and self._rows is not None else None

    def table(self) -> Array | None:
        return None if self._rows is None else torch.cat(self._rows).double().cpu().numpy()

    @property
    def scale(self) -> float | None:
        return (self._squares / self._count) ** 0.5 if self._count else None

    def describe_nan(self) -> str:
        return f": {self._not_finite:,} numbers of its inputs are not" if self._not_finite else ""


def _are_probs(outputs: Any, likelihood: Any) -> bool:
    """Whether the outputs of a classifier are probabilities instead of logits."""
    dim = likelihood.dim + 1 if likelihood.dim >= 0 else likelihood.dim
    return bool((outputs >= 0).all() and ((outputs.sum(dim) - 1).abs() < 1e-3).all())
