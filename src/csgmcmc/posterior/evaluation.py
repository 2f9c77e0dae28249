"""One pass over held-out data that collects what a check judges."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.checks import Evaluation
from csgmcmc.posterior.batches import bar_over, groups, targets_of
from csgmcmc.posterior.likelihoods import Categorical, Gaussian
from csgmcmc.posterior.members import full_precision
from csgmcmc.posterior.predictive import ClassPredictive, Predictive

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior


def evaluate(posterior: "Posterior", loader: Iterable[Any]) -> Evaluation:
    """What every draw predicts for the data of `loader`. Each draw sees each batch once."""
    members, likelihood = posterior.members, posterior.likelihood
    weights = torch.as_tensor(posterior.weights, device=members.device)
    predictions: list[Predictive] = []
    scores: list[Tensor] = []  # (draws, points) of each batch
    ranks: list[Tensor] = []  # (draws, points, ...) of each batch
    with bar_over(loader, len(weights), "evaluating", shown=posterior.progress) as bar:
        for group in groups(loader):
            targets = targets_of(group, members.device)
            averages = [likelihood.average() for _ in group]
            group_scores: list[list[Tensor]] = [[] for _ in group]
            group_ranks: list[list[Tensor]] = [[] for _ in group]
            with torch.inference_mode():
                for numbers, batch, outputs in members.outputs([inputs for inputs, _ in group]):
                    with full_precision(members.device):
                        averages[batch].add(weights[numbers], outputs, keep_members=True)
                        group_scores[batch].append(likelihood.log_prob(outputs, targets[batch]))
                        if isinstance(likelihood, Gaussian):
                            below = likelihood.cumulative(outputs, targets[batch])
                            group_ranks[batch].append(below)
                    bar.advance(len(numbers))
            predictions += [
                replace(average.result(), targets=target)
                for average, target in zip(averages, targets, strict=True)
            ]
            scores += [torch.cat(parts) for parts in group_scores]
            ranks += [torch.cat(parts) for parts in group_ranks if parts]
    evaluation = Evaluation(
        weights=posterior.weights,
        chain_ids=np.array([draw.chain_id for draw in posterior.draws]),
        cycles=posterior.cycles,
        log_scores=torch.cat(scores, dim=1).cpu().numpy(),
    )
    predictive = type(predictions[0]).joined(predictions)
    if isinstance(predictive, ClassPredictive):
        return _with_classes(evaluation, predictive, posterior)
    return _with_numbers(evaluation, predictive, ranks)


def _with_classes(
    evaluation: Evaluation, predictive: ClassPredictive, posterior: "Posterior"
) -> Evaluation:
    labels = predictive.labels_numpy()
    counts = np.full(labels.shape, True)
    if isinstance(posterior.likelihood, Categorical):
        counts = labels != posterior.likelihood.ignore_index
    return replace(
        evaluation,
        probs=predictive.probs_numpy()[counts],
        member_probs=predictive.member_probs_numpy()[:, counts],
        labels=labels[counts],
    )


def _with_numbers(
    evaluation: Evaluation, predictive: Predictive, ranks: list[Tensor]
) -> Evaluation:
    """Ranks are those of the averaged prediction, a mixture of the members'."""
    assert predictive.members is not None  # noqa: S101  (they were kept)
    means = predictive.members.double().cpu().numpy()
    mixed = [np.tensordot(evaluation.weights, part.cpu().numpy(), axes=1) for part in ranks]
    return replace(
        evaluation,
        means=means.reshape(len(means), -1),
        ranks=np.concatenate([part.reshape(len(part), -1) for part in mixed]),
    )
