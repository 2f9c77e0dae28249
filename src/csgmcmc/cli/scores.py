"""Scores of a run on validation data: the posterior predictive beside its single draws."""

from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from csgmcmc import diagnostics
from csgmcmc.checks import Evaluation, TrainingRun, check_draws
from csgmcmc.cli.sampling import Sampled
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.evaluation import batch_nll, evaluate
from csgmcmc.task import check_pairs

Scores = dict[str, float]


def judge(posterior: Posterior, done: Sampled) -> dict[str, Any]:
    """Scores of the posterior predictive, mean scores of its draws, and `Posterior.check`."""
    # A list: the scores and the targets are of the same data even if the loader shuffles.
    batches = check_pairs(list(done.task.validation or ()), posterior.likelihood)
    evaluation = evaluate(posterior, batches)
    options = posterior.model, posterior.draws, posterior.members.autocast
    nll = partial(batch_nll, posterior)
    run = TrainingRun(done.chain.stepper, done.task.loss, done.task.data, *options, nll=nll)
    check = check_draws(evaluation, run)
    average, *draws = _scores(evaluation, [targets for _, targets in batches])
    means = {name: float(np.mean([draw[name] for draw in draws])) for name in average}
    return {
        "average": {**average, "NLL": check.numbers["nll"]},
        "draw": {**means, "NLL": check.numbers["nll_mean_of_draws"]},
        "check": str(check),
    }


def _scores(found: Evaluation, targets: list[Tensor]) -> list[Scores]:
    """Scores of the posterior predictive, then of each draw."""
    labels, probs, member_probs = found.labels, found.probs, found.member_probs
    if labels is None or probs is None or member_probs is None:
        assert found.means is not None  # noqa: S101  (it is regression)
        wanted = np.concatenate([part.double().flatten().cpu().numpy() for part in targets])
        errors = [mean - wanted for mean in (found.weights @ found.means, *found.means)]
        return [{"RMSE": float(np.sqrt(np.square(error).mean()))} for error in errors]
    return [
        {
            "error": 1 - diagnostics.accuracy(each, labels),
            "ECE": diagnostics.calibration_error(each, labels, binning="mass"),
        }
        for each in (probs, *member_probs)
    ]
