"""One pass over held-out data that collects the predictions of every draw."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.posterior import Posterior
from csgmcmc.posterior.averages import weighted
from csgmcmc.posterior.likelihoods.base import NumberLikelihood
from csgmcmc.posterior.likelihoods.classes import Categorical
from csgmcmc.posterior.passes import passes
from csgmcmc.posterior.predictive import ClassPredictive, Predictive

Array = NDArray[np.float64]


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
    """

    weights: Array
    chain_ids: NDArray[np.int64]
    cycles: NDArray[np.int64]
    log_scores: Array
    members: Array
    targets: NDArray[Any]
    probs: Array | None = None
    ranks: Array | None = None

    @property
    def targets_per_point(self) -> float:
        """Mean number of targets of a data point: labels, pixels, tokens, or outputs."""
        return max(self.targets.size, 1) / self.log_scores.shape[1]

    @property
    def nll_of_draws(self) -> Array:
        """NLL per target of each draw alone."""
        return -self.log_scores.mean(axis=1) / self.targets_per_point

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


def evaluate(posterior: Posterior, loader: Iterable[Any]) -> Evaluation:
    """Collect the predictions of every draw for the data of `loader`, in one pass over it."""
    likelihood, weights = posterior.likelihood, posterior.weights
    predictions: list[Predictive] = []
    scores: list[Tensor] = []  # (draws, points) of each batch
    ranks: list[Tensor] = []  # (points, ...) of each batch, under the averaged prediction
    for group in passes(posterior, loader, "evaluating"):
        targets = group.targets()
        averages = [likelihood.average() for _ in targets]
        group_scores: list[list[Tensor]] = [[] for _ in targets]
        group_ranks = [torch.zeros((), device=posterior.members.device) for _ in targets]
        for numbers, index, outputs in group.outputs():
            averages[index].add(weights[numbers], outputs, keep_members=True)
            group_scores[index].append(likelihood.log_prob(outputs, targets[index]))
            if isinstance(likelihood, NumberLikelihood):
                below = likelihood.cumulative(outputs, targets[index])
                shares = torch.as_tensor(weights[numbers], device=posterior.members.device)
                group_ranks[index] = group_ranks[index] + weighted(shares, below)
        predictions += [
            replace(average.result(), targets=target)
            for average, target in zip(averages, targets, strict=True)
        ]
        scores += [torch.cat(parts) for parts in group_scores]
        ranks += group_ranks
    predictive: Any = type(predictions[0]).joined(predictions)
    if isinstance(predictive, ClassPredictive):
        labels = predictive.labels_numpy()
        counts = np.full(labels.shape, True)
        if isinstance(likelihood, Categorical):
            counts = labels != likelihood.ignore_index
        members = predictive.member_probs_numpy()[:, counts]
        found = {"targets": labels[counts], "probs": predictive.probs_numpy()[counts]}
    else:
        members = predictive.members.double().flatten(1).cpu().numpy()
        values = predictive.targets.double().flatten().cpu().numpy()
        below = [part.reshape(len(part), -1).cpu().numpy() for part in ranks]
        found = {"targets": values, "ranks": np.concatenate(below)}
    return Evaluation(
        weights=weights,
        chain_ids=np.array([draw.chain_id for draw in posterior.draws]),
        cycles=posterior.cycles,
        log_scores=torch.cat(scores, dim=1).cpu().numpy(),
        members=members,
        **found,
    )
