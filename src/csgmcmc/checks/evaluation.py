"""One pass over held-out data that collects the predictions of every draw."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from csgmcmc.draws import Draw
from csgmcmc.loaders import is_pair
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.averages import weighted
from csgmcmc.posterior.likelihoods.base import NumberLikelihood
from csgmcmc.posterior.likelihoods.classes import Categorical
from csgmcmc.posterior.passes import Scores, over_draws
from csgmcmc.posterior.predictive import ClassPredictive

Array = NDArray[np.float64]
MAX_ROWS, MAX_FEATURES = 2000, 256  # of a table of inputs that is kept


@dataclass(frozen=True)
class Evaluation:
    """Predictions of every draw on held-out data, as plain arrays.

    Every pixel or label of a classifier is a separate point in `members`, `targets` and `probs`,
    and ignored targets are left out.

    Attributes:
        weights: weight of each draw; they sum to 1.
        chain_ids, cycles: of each draw; cycles of different chains have different numbers.
        log_scores: log-likelihood of each data point under each draw, (draws, data points).
        members: predictions of each draw: probabilities of classes, (draws, points, classes), or
            means of numbers, (draws, numbers).
        targets: true classes, (points,), or values, (numbers,).
        probs: averaged probabilities, (points, classes); None for numbers.
        ranks: probability below the target under the averaged prediction, (data points, outputs);
            None for classes.
        point_of_target: data point of each target.
        inputs: the first rows of a table of inputs; None where they are something else.
        input_scale: root mean square of the inputs; None where they are not one tensor of floats.
        returns_probs: whether all outputs are probabilities, where logits are expected.
        drawn: which draws were sampled; the others are a trained network that the run began with.
        start: the same of that network alone, unscaled, if there was one.
    """

    weights: Array
    chain_ids: NDArray[np.int64]
    cycles: NDArray[np.int64]
    log_scores: Array
    members: Array
    targets: NDArray[Any]
    probs: Array | None = None
    ranks: Array | None = None
    point_of_target: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=int))
    inputs: Array | None = None
    input_scale: float | None = None
    returns_probs: bool = False
    drawn: NDArray[np.bool_] | None = None
    start: "Evaluation | None" = None

    def of_run(self) -> "Evaluation":
        """The predictions of the draws that were sampled."""
        if self.drawn is None or not self.drawn.any():
            return self
        names = ("weights", "chain_ids", "cycles", "log_scores", "members")
        return replace(self, **{name: getattr(self, name)[self.drawn] for name in names})

    @property
    def averaged(self) -> Array:
        """The averaged prediction: probabilities of classes, or means of numbers."""
        return self.weights @ self.members if self.probs is None else self.probs

    @property
    def targets_per_point(self) -> float:
        """Mean number of targets of a data point: labels, pixels, tokens, or outputs."""
        return max(self.targets.size, 1) / self.log_scores.shape[1]

    def per_point(self, scores: Array) -> Array:
        """Sum of the scores of the targets of each data point, per target."""
        sums = np.bincount(self.point_of_target, scores, self.log_scores.shape[1])
        return sums / self.targets_per_point

    @property
    def nll_of_draws(self) -> Array:
        """NLL per target of each draw alone."""
        return -self.log_scores.mean(axis=1) / self.targets_per_point

    def average_scores(self, weights: Array | None = None) -> Array:
        """Log-likelihood of each data point under the weighted average; by default of `weights`."""
        chosen = self.weights if weights is None else weights / weights.sum()
        return np.asarray(special.logsumexp(self.log_scores, axis=0, b=chosen[:, None]))

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
        return float(-self.average_scores(weights).mean()) / self.targets_per_point

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
        if isinstance(self.likelihood, Categorical) and self.are_probs:
            sums = outputs.sum(self.likelihood.dim + (self.likelihood.dim >= 0))
            self.are_probs = bool((outputs >= 0).all() and ((sums - 1).abs() < 1e-3).all())
        if isinstance(self.likelihood, NumberLikelihood):
            below = self.likelihood.cumulative(outputs, self.scores.targets)
            weights = torch.as_tensor(self.weights[numbers], device=below.device)
            self.ranks = self.ranks + weighted(weights, below)


def evenly_spaced(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(int)).tolist()


def unscaled(posterior: Posterior, draws: Sequence[Draw]) -> Posterior:
    """The posterior with other draws, and the likelihood that a run has: without a temperature."""
    other = posterior.with_draws(draws)
    if other.likelihood.temperature is not None:
        other.likelihood = other.likelihood.scaled(1.0)
    return other


def evaluate(posterior: Posterior, loader: Iterable[Any]) -> Evaluation:
    """Collect the predictions of every draw for the data of `loader`, in one pass over it."""
    squares: list[float] = []  # their mean in each batch of inputs
    rows: list[Tensor] = []

    def split(batch: Any) -> Any:
        found: Any = posterior.split(batch)
        inputs = found[0] if is_pair(found) else None
        if isinstance(inputs, Tensor) and inputs.is_floating_point():
            squares.append(inputs.double().square().nanmean().item())
            is_table = inputs.ndim == 2 and inputs.shape[1] <= MAX_FEATURES
            if is_table and sum(map(len, rows)) < MAX_ROWS:
                rows.append(inputs)
        return found

    collected = over_draws(posterior, loader, "evaluating", partial(_Batch, posterior), split=split)
    batches = list(collected)
    predictions = [batch.average.result() for batch in batches]
    predictive: Any = type(predictions[0]).joined(predictions)
    log_scores = torch.cat([batch.scores.result() for batch in batches], dim=1).cpu().numpy()
    points = np.arange(log_scores.shape[1])
    if isinstance(predictive, ClassPredictive):
        labels = predictive.labels_numpy()
        counts = np.full(labels.shape, True)
        if isinstance(posterior.likelihood, Categorical):
            counts = labels != posterior.likelihood.ignore_index
        members = predictive.member_probs_numpy()[:, counts]
        if not np.isfinite(members).all():
            raise ValueError(
                "loader gives predictions that are not finite: remove or fill nan in the inputs, "
                "in the training data too"
            )
        found = {"targets": labels[counts], "probs": predictive.probs_numpy()[counts]}
    else:
        members = predictive.members.double().flatten(1).cpu().numpy()
        values = predictive.targets.double().flatten().cpu().numpy()
        below = [batch.ranks.reshape(len(batch.ranks), -1).cpu().numpy() for batch in batches]
        counts = np.full(values.size, True)
        found = {"targets": values, "ranks": np.concatenate(below)}
    start = None if isinstance(loader, Iterator) else getattr(posterior.run, "start", None)
    if start is not None:
        started = unscaled(posterior, start)
        started.run = None
        start = evaluate(started, loader)
    return Evaluation(
        weights=posterior.weights,
        chain_ids=np.array([draw.chain_id for draw in posterior.draws]),
        cycles=posterior.cycles,
        log_scores=log_scores,
        members=members,
        point_of_target=np.repeat(points, counts.size // points.size)[counts],
        inputs=torch.cat(rows).double().cpu().numpy() if rows else None,
        input_scale=float(np.mean(squares)) ** 0.5 if squares else None,
        returns_probs=all(batch.are_probs for batch in batches),
        drawn=np.array([draw.stage == "sample" for draw in posterior.draws]),
        start=start,
        **found,
    )
