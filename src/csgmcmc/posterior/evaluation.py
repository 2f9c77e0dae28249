"""One pass over held-out data that collects what a check judges."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from csgmcmc.batches import Loss, is_pair
from csgmcmc.checks import Evaluation, TrainingRun
from csgmcmc.checks.run import StepperLike
from csgmcmc.posterior.averages import weighted
from csgmcmc.posterior.batches import bar_over, groups, plain_split, targets_of
from csgmcmc.posterior.likelihoods import Categorical, Likelihood
from csgmcmc.posterior.members import full_precision
from csgmcmc.posterior.numbers import NumberLikelihood
from csgmcmc.posterior.predictive import ClassPredictive, Predictive

if TYPE_CHECKING:
    from csgmcmc.posterior.posterior import Posterior


def evaluate(posterior: "Posterior", loader: Iterable[Any]) -> Evaluation:
    """What every draw predicts for the data of `loader`. Each draw sees each batch once."""
    members, likelihood = posterior.members, posterior.likelihood
    weights = posterior.weights
    predictions: list[Predictive] = []
    scores: list[Tensor] = []  # (draws, points) of each batch
    ranks: list[Tensor] = []  # (points, ...) of each batch, under the averaged prediction
    with bar_over(loader, len(weights), "evaluating", shown=posterior.progress) as bar:
        for group in groups(loader, posterior.split):
            targets = targets_of(group, members.device)
            averages = [likelihood.average() for _ in group]
            group_scores: list[list[Tensor]] = [[] for _ in group]
            group_ranks = [torch.zeros(()) for _ in group]
            with torch.inference_mode():
                for numbers, batch, outputs in members.outputs([inputs for inputs, _ in group]):
                    with full_precision(members.device):
                        averages[batch].add(weights[numbers], outputs, keep_members=True)
                        group_scores[batch].append(likelihood.log_prob(outputs, targets[batch]))
                        if isinstance(likelihood, NumberLikelihood):
                            below = likelihood.cumulative(outputs, targets[batch])
                            shares = torch.as_tensor(weights[numbers], device=members.device)
                            mixed = weighted(shares, below)
                            group_ranks[batch] = group_ranks[batch] + mixed
                    bar.advance(len(numbers))
            predictions += [
                replace(average.result(), targets=target)
                for average, target in zip(averages, targets, strict=True)
            ]
            scores += [torch.cat(parts) for parts in group_scores]
            ranks += group_ranks
    predictive = type(predictions[0]).joined(predictions)
    if isinstance(predictive, ClassPredictive):
        found = _of_classes(predictive, likelihood)
    else:
        assert predictive.members is not None  # noqa: S101  (they were kept)
        assert predictive.targets is not None  # noqa: S101
        rows = [part.reshape(len(part), -1).cpu().numpy() for part in ranks]
        means = predictive.members.double().flatten(1).cpu().numpy()
        wanted = predictive.targets.double().flatten().cpu().numpy()
        found = {"means": means, "ranks": np.concatenate(rows), "targets": wanted}
    return Evaluation(
        weights=posterior.weights,
        chain_ids=np.array([draw.chain_id for draw in posterior.draws]),
        cycles=posterior.cycles,
        log_scores=torch.cat(scores, dim=1).cpu().numpy(),
        **found,
    )


def training_run(
    posterior: "Posterior",
    stepper: StepperLike | None,
    loss: Loss | None = None,
    data: Iterable[Any] | None = None,
) -> TrainingRun | None:
    """The run that made the draws, for a check; None without its stepper."""
    if stepper is None:
        if loss is not None or data is not None:
            raise ValueError("loss and data are of a run: give its stepper too, as stepper=")
        return None
    return TrainingRun(
        *(stepper, loss, data, posterior.model, posterior.draws, posterior.members.autocast),
        nll=partial(batch_nll, posterior),
    )


def batch_nll(posterior: "Posterior", model: nn.Module, batch: Any) -> Tensor | None:
    """The NLL of a batch of a `Chain`, summed, with gradients; None if it has no targets."""
    likelihood, forward = posterior.likelihood, posterior.forward
    inputs, targets = (plain_split if is_pair(batch) else posterior.split)(batch)
    if not isinstance(targets, Tensor):
        return None
    outputs = pytree.tree_map_only(Tensor, lambda x: x.unsqueeze(0), forward(model, inputs))
    return -likelihood.log_prob(outputs, targets).sum()


def _of_classes(predictive: ClassPredictive, likelihood: Likelihood) -> dict[str, NDArray[Any]]:
    labels, probs = predictive.labels_numpy(), predictive.probs_numpy()
    counts = np.full(labels.shape, True)
    if isinstance(likelihood, Categorical):
        counts = labels != likelihood.ignore_index
    members = predictive.member_probs_numpy()[:, counts]
    return {"probs": probs[counts], "member_probs": members, "labels": labels[counts]}
