"""Scores of a run on validation data: the posterior predictive beside its single draws."""

from typing import Any

import numpy as np

from csgmcmc import diagnostics
from csgmcmc.checks import Evaluation, check_draws
from csgmcmc.cli.sampling import Sampled
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.evaluation import evaluate, training_run
from csgmcmc.posterior.reporting import findings_of
from csgmcmc.report.findings import Findings
from csgmcmc.task import check_pairs

Scores = dict[str, float]


def judge(posterior: Posterior, done: Sampled) -> tuple[dict[str, Any], Findings]:
    """Scores of the posterior predictive, mean scores of its draws, and `Posterior.check`.

    Then all that the page of the run shows of the validation data.
    """
    task = done.task
    batches = check_pairs(list(task.validation or ()), posterior.likelihood)
    evaluation = evaluate(posterior, batches)
    run = training_run(posterior, done.chain.stepper, task.loss, task.data)
    check = check_draws(evaluation, run)
    average, *draws = _scores(evaluation)
    means = {name: float(np.mean([draw[name] for draw in draws])) for name in average}
    record = {
        "average": {**average, "NLL": check.numbers["nll"]},
        "draw": {**means, "NLL": check.numbers["nll_mean_of_draws"]},
        "check": str(check),
    }
    return record, findings_of(posterior, evaluation, check, task.other)


def _scores(found: Evaluation) -> list[Scores]:
    """Scores of the posterior predictive, then of each draw."""
    labels, probs, member_probs = found.labels, found.probs, found.member_probs
    if labels is None or probs is None or member_probs is None:
        assert found.means is not None  # noqa: S101  (it is regression)
        assert found.targets is not None  # noqa: S101
        errors = [mean - found.targets for mean in (found.weights @ found.means, *found.means)]
        return [{"RMSE": float(np.sqrt(np.square(error).mean()))} for error in errors]
    return [
        {
            "error": 1 - diagnostics.accuracy(each, labels),
            "ECE": diagnostics.calibration_error(each, labels, binning="mass"),
        }
        for each in (probs, *member_probs)
    ]
