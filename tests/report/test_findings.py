"""The numbers of a page equal those of the posterior."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import MemoryDraws, Posterior, diagnostics
from csgmcmc.checks.evaluation import evaluate
from csgmcmc.checks.posterior_check import judge
from csgmcmc.posterior import Gaussian, NumberPredictive
from csgmcmc.report.charts import calibration_curve
from csgmcmc.report.page import cycle_table
from tests.report.support import held_out, run


@pytest.fixture(scope="module")
def posterior():
    return run(MemoryDraws())[1]


@pytest.fixture(scope="module")
def evaluation(posterior):
    return evaluate(posterior, held_out())


def scores_of_cycles(evaluation):
    """NLL, error in percent, and weight of each cycle, as the table shows them."""
    cells = re.findall(r'<td class="number"[^>]*>([^<]*)</td>', cycle_table(evaluation))
    return np.array([float(cell.rstrip("%")) for cell in cells]).reshape(-1, 3)


@pytest.mark.parametrize("count", [1, 4, 9])
def test_scores_by_number_of_draws(posterior, evaluation, count):
    numbers = posterior.with_draws(posterior.draws[:count]).check(held_out()).numbers
    nlls = evaluation.nll_by_draws(evaluation.weights)
    assert nlls[count - 1] == pytest.approx(numbers["nll"], rel=1e-5)
    assert evaluation.error_by_draws()[count - 1] == pytest.approx(numbers["error"])
    alone = posterior.with_draws([posterior.draws[count - 1]]).check(held_out()).numbers
    assert evaluation.nll_of_draws[count - 1] == pytest.approx(alone["nll"], rel=1e-5)
    error = evaluation.error(evaluation.members[count - 1])
    assert error == pytest.approx(alone["error"])


def test_scores_of_a_cycle(posterior, evaluation):
    cycles = scores_of_cycles(evaluation)
    assert len(cycles) == 3
    numbers = posterior.with_draws(posterior.draws[3:6]).check(held_out()).numbers
    exact = numbers["nll"], 100 * numbers["error"], 1 / 3
    assert cycles[1] == pytest.approx(exact, abs=0.005)
    assert cycles[1, 0] == pytest.approx(numbers["nll"], abs=1e-4)


def test_findings_use_the_weights(posterior):
    weights = [0, 0, 0, 1, 2, 3, 0, 0, 0]
    weighted = Posterior(posterior.model, posterior.draws, weights, progress=False)
    evaluation = evaluate(weighted, held_out())
    cycles, nll = scores_of_cycles(evaluation), weighted.check(held_out()).numbers["nll"]
    assert cycles[:, 2] == pytest.approx([0, 1, 0])
    nlls = evaluation.nll_by_draws(weighted.weights)
    assert nlls[-1] == pytest.approx(nll, rel=1e-6)
    assert np.isnan(nlls[:3]).all()
    assert np.isnan(evaluation.error_by_draws()[:3]).all()
    assert cycles[1, 0] == pytest.approx(nll, abs=1e-4)
    assert np.isfinite(cycles).all()  # of cycles without weight, with equal weights of their draws


def test_calibration_of_the_average(posterior, evaluation):
    p = posterior.predict_loader(held_out())
    curve = diagnostics.reliability_curve(p.probs_numpy(), p.labels_numpy())
    found = calibration_curve(evaluation)
    assert found.confidence == pytest.approx(curve.confidence)
    assert found.accuracy == pytest.approx(curve.accuracy)


def test_rmse_and_coverage_of_regression():
    torch.manual_seed(0)
    model, draws = nn.Linear(2, 1), MemoryDraws()
    for step in range(4):
        with torch.no_grad():
            model.weight.normal_()
        draws.append(model, step=step)
    inputs, targets = torch.randn(30, 2), torch.randn(30)
    posterior = Posterior(model, draws, likelihood=Gaussian(variance=0.5), progress=False)
    evaluation = evaluate(posterior, DataLoader(TensorDataset(inputs, targets), 10))
    numbers = judge(posterior, evaluation, None).numbers
    predicted = posterior.predict(inputs)
    assert isinstance(predicted, NumberPredictive)
    errors = predicted.mean.squeeze(1) - targets
    exact = errors.square().mean().sqrt().item()
    assert evaluation.error_by_draws()[-1] == pytest.approx(exact, rel=1e-5)
    inside = calibration_curve(evaluation).accuracy
    assert inside[-2] == pytest.approx(numbers["coverage_90"])
