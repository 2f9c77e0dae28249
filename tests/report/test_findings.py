"""The numbers of a page are those of the posterior itself."""

import json
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import MemoryDraws, Posterior
from csgmcmc.checks import check_draws
from csgmcmc.diagnostics import auroc, reliability_curve
from csgmcmc.posterior import Gaussian, GaussianPredictive
from csgmcmc.posterior.evaluation import evaluate, training_run
from csgmcmc.posterior.reporting import findings_of
from csgmcmc.report.findings import Findings
from tests.report.support import held_out, other, run


def findings(posterior, *, chain=None, others=None):
    evaluation = evaluate(posterior, held_out())
    training = None
    if chain is not None:
        training = training_run(posterior, chain.stepper, chain.loss, chain.data)
    return findings_of(posterior, evaluation, check_draws(evaluation, training), others)


@pytest.fixture(scope="module")
def sampled():
    return run(MemoryDraws())


@pytest.fixture(scope="module")
def found(sampled):
    chain, posterior = sampled
    return findings(posterior, chain=chain, others=other())


@pytest.mark.parametrize("count", [1, 4, 9])
def test_scores_of_the_first_draws_are_those_of_their_posterior(sampled, found, count):
    _, posterior = sampled
    numbers = posterior.with_draws(posterior.draws[:count]).check(held_out()).numbers
    assert found.nll_by_draws[count - 1] == pytest.approx(numbers["nll"], rel=1e-5)
    assert found.error_by_draws[count - 1] == pytest.approx(numbers["error"])
    alone = posterior.with_draws([posterior.draws[count - 1]]).check(held_out()).numbers
    assert found.nll_of_draws[count - 1] == pytest.approx(alone["nll"], rel=1e-5)
    assert found.error_of_draws[count - 1] == pytest.approx(alone["error"])


def test_scores_of_a_cycle_are_those_of_its_draws(sampled, found):
    _, posterior = sampled
    assert [row["cycle"] for row in found.cycles] == [0, 1, 2]
    numbers = posterior.with_draws(posterior.draws[3:6]).check(held_out()).numbers
    assert found.cycles[1]["nll"] == pytest.approx(numbers["nll"], rel=1e-5)
    assert found.cycles[1]["error"] == pytest.approx(numbers["error"])
    stacked = posterior.weigh("stacking", held_out()).weights.reshape(3, 3).sum(1)
    assert [row["stacking"] for row in found.cycles] == pytest.approx(stacked, abs=1e-4)
    assert [row["weight"] for row in found.cycles] == pytest.approx([1 / 3] * 3)


def test_weights_count(sampled):
    _, posterior = sampled
    weights = [0, 0, 0, 1, 2, 3, 0, 0, 0]
    weighted = Posterior(posterior.model, posterior.draws, weights, progress=False)
    found = findings(weighted)
    assert [row["weight"] for row in found.cycles] == [0, 1, 0]
    assert found.nll_by_draws[-1] == pytest.approx(found.numbers["nll"], rel=1e-6)
    assert np.isnan(found.nll_by_draws[:3]).all()
    assert np.isnan(found.error_by_draws[:3]).all()
    assert found.cycles[1]["nll"] == pytest.approx(found.numbers["nll"], rel=1e-6)
    assert math.isfinite(found.cycles[0]["nll"])  # of its draws with equal weights


def test_calibration_and_entropy_are_those_of_the_average(sampled, found):
    _, posterior = sampled
    p = posterior.predict_loader(held_out())
    curve = reliability_curve(p.probs_numpy(), p.labels_numpy())
    assert found.confidence == pytest.approx(curve.confidence)
    assert found.accuracy == pytest.approx(curve.accuracy)
    entropy = p.entropy.numpy()
    right = (p.probs.argmax(1) == p.targets).numpy()
    middle = found.entropies[50]
    assert found.share_up_to["right"][50] == pytest.approx((entropy[right] <= middle).mean())
    assert found.share_up_to["wrong"][50] == pytest.approx((entropy[~right] <= middle).mean())
    unlike = posterior.predict_loader(other()).entropy.numpy()
    assert found.share_up_to["other"][50] == pytest.approx((unlike <= middle).mean())
    assert found.auroc["wrong"] == pytest.approx(auroc(entropy[right], entropy[~right]), abs=1e-3)
    assert found.auroc["other"] == pytest.approx(auroc(entropy, unlike), abs=1e-3)
    assert {shares[-1] for shares in found.share_up_to.values()} == {1.0}


def test_verdicts_and_temperatures_are_those_of_the_check(sampled):
    chain, posterior = sampled
    check = posterior.check(held_out(), stepper=chain.stepper, loss=chain.loss, data=chain.data)
    found = findings_of(posterior, evaluate(posterior, held_out()), check, None)
    for name, verdict in found.verdicts.items():
        assert verdict == vars(getattr(check, name))
    assert found.advice == check.advice
    assert found.parameters.keys() == check.parameters.keys()
    for name, row in found.parameters.items():
        temperature = check.parameters[name].temperature
        assert temperature is not None
        assert row["value"] == pytest.approx(temperature.value)
        assert row["target"] == pytest.approx(temperature.target)


def test_numbers_have_an_rmse_and_coverage():
    torch.manual_seed(0)
    model, draws = nn.Linear(2, 1), MemoryDraws()
    for step in range(4):
        with torch.no_grad():
            model.weight.normal_()
        draws.append(model, step=step)
    inputs, targets = torch.randn(30, 2), torch.randn(30)
    posterior = Posterior(model, draws, likelihood=Gaussian(variance=0.5), progress=False)
    evaluation = evaluate(posterior, DataLoader(TensorDataset(inputs, targets), 10))
    found = findings_of(posterior, evaluation, check_draws(evaluation), other())
    predicted = posterior.predict(inputs)
    assert isinstance(predicted, GaussianPredictive)
    errors = predicted.mean.squeeze(1) - targets
    assert found.error_name == "RMSE"
    assert found.error_by_draws[-1] == pytest.approx(errors.square().mean().sqrt().item(), rel=1e-5)
    assert found.accuracy[-2] == pytest.approx(found.numbers["coverage_90"])
    assert found.entropies == []
    assert found.share_up_to == {}


def test_a_file_keeps_them(found, tmp_path):
    path = tmp_path / "report.json"
    found.save(path)
    assert Findings.load(path) == found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"points": -1}, "points must be at least 0"),
        ({"points": 10**400}, "points must be below"),
        ({"error_name": "<b>"}, "error_name must be one of"),
        ({"nll_by_draws": ["x"]}, r"nll_by_draws\[0\] must be a number"),
        ({"nll_by_draws": []}, "nll_by_draws is empty"),
        ({"nll_by_draws": [1.0]}, "have different lengths"),
        ({"cycles": []}, "cycles is empty"),
        ({"confidence": [0.5]}, "confidence, accuracy, count have different lengths"),
        ({"share_up_to": {"right": [1.0]}}, "share_up_to and entropies have different lengths"),
        ({"verdicts": {}}, "verdicts has no sampling, mixing"),
        ({"cycles": [{"cycle": 0}]}, r"cycles\[0\] has no chain_id"),
        ({"parameters": {"w": None}}, "parameters.w must be an object"),
        ({"advice": [5]}, r"advice\[0\] must be text"),
    ],
)
def test_a_damaged_file_is_named(found, tmp_path, changes, words):
    path = tmp_path / "report.json"
    found.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ValueError, match=words) as error:
        Findings.load(path)
    assert "report.json is damaged" in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", "5", "[" * 100_000])
def test_what_is_no_file_of_findings_is_named(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"report\.json is"):
        Findings.load(path)
