"""Scores of a run on validation data: the posterior predictive beside its single draws."""

from statistics import fmean
from typing import Any

import numpy as np
import torch

from csgmcmc import diagnostics
from csgmcmc.cli.sampling import Sampled
from csgmcmc.posterior import Categorical, ClassPredictive, GaussianPredictive, Posterior
from csgmcmc.posterior.predictive import Predictive
from csgmcmc.task import check_pairs


def judge(posterior: Posterior, done: Sampled) -> dict[str, Any]:
    """Scores of the posterior predictive, mean scores of its draws, and `Posterior.check`."""
    # A list, so that all scores see the same data even if the loader shuffles.
    batches = check_pairs(list(done.task.validation or ()), posterior.likelihood)
    task, stepper = done.task, done.chain.stepper
    check = posterior.check(batches, stepper=stepper, loss=task.loss, data=task.data)
    average, draws = _scores(posterior, posterior.predict_loader(batches, members=True))
    numbers = check.numbers
    return {
        "average": {**average, "NLL": numbers["nll"]},
        "draw": {**draws, "NLL": numbers["nll_mean_of_draws"]},
        "check": str(check),
    }


def _scores(posterior: Posterior, predictive: Predictive) -> list[dict[str, float]]:
    """Scores of the posterior predictive, and the mean of the scores of the draws."""
    if isinstance(predictive, GaussianPredictive):
        members, targets = predictive.members, predictive.targets
        assert members is not None  # noqa: S101  (requested)
        assert targets is not None  # noqa: S101  (check needs them too)
        errors = torch.cat([predictive.mean[None], members]).cpu() - targets.cpu()
        average, *single = errors.double().square().flatten(1).mean(1).sqrt().tolist()
        return [{"RMSE": average}, {"RMSE": fmean(single)}]
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (there is no other)
    labels = predictive.labels_numpy()
    counts = np.full(labels.shape, True)
    if isinstance(posterior.likelihood, Categorical):
        counts = labels != posterior.likelihood.ignore_index
    average, *draws = (
        {
            "error": 1 - diagnostics.accuracy(forecasts[counts], labels[counts]),
            "ECE": diagnostics.calibration_error(forecasts[counts], labels[counts], binning="mass"),
        }
        for forecasts in (predictive.probs_numpy(), *predictive.member_probs_numpy())
    )
    return [average, {name: fmean(draw[name] for draw in draws) for name in average}]
