"""What the draws of a run are worth on held-out data: the average beside its draws."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch import Tensor

from csgmcmc import diagnostics
from csgmcmc.chain import Chain
from csgmcmc.posterior import Categorical, ClassPredictive, GaussianPredictive, Posterior
from csgmcmc.posterior.predictive import Predictive
from csgmcmc.task import check_pairs

Scores = dict[str, float]


def judge(posterior: Posterior, validation: Iterable[Any], chain: Chain) -> dict[str, Any]:
    """Scores of the average and, as a mean, of its draws; and `Posterior.check` in words."""
    # A list: of a loader that shuffles, too, all see the same.
    batches = check_pairs(list(validation), posterior.likelihood)
    check = posterior.check(batches, stepper=chain.stepper, loss=chain.loss, data=chain.data)
    average, draws = _scores(posterior, posterior.predict_loader(batches, members=True))
    numbers = check.numbers
    return {
        "average": {**average, "NLL": numbers["nll"]},
        "draw": {**draws, "NLL": numbers["nll_mean_of_draws"]},
        "check": str(check),
    }


def _scores(posterior: Posterior, predictive: Predictive) -> tuple[Scores, Scores]:
    """Of the average, and the mean of those of the draws."""
    if isinstance(predictive, GaussianPredictive):
        assert predictive.members is not None  # noqa: S101  (they were asked for)
        wrong = [_root_mean_square(mean, predictive) for mean in predictive.members]
        return {"RMSE": _root_mean_square(predictive.mean, predictive)}, {"RMSE": _mean(wrong)}
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
    return average, {name: _mean([draw[name] for draw in draws]) for name in average}


def _root_mean_square(mean: Tensor, predictive: Predictive) -> float:
    assert predictive.targets is not None  # noqa: S101  (check has seen them)
    return float((mean.cpu() - predictive.targets.cpu()).double().square().mean().sqrt())


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
