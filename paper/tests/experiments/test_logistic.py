"""Logistic regression: the arithmetic, held to exact answers, and a small run from end to end."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from csgmcmc.diagnostics import effective_sample_size
from csgmcmc.noise import Noise
from csgmcmc.samplers import SGHMC
from csgmcmc.schedules import Constant, Keep
from paper.density import BLOCK
from paper.experiments import find_experiments, reproduce
from paper.experiments.logistic import (
    SEARCH_SEED,
    Logistic,
    LogisticConfig,
    best_choice,
    carried_over,
)
from paper.experiments.logistic_runs import Settings, lr_with_excess, reference, sample, score
from paper.targets import LogisticRegression
from tests.support import SIGMAS

PAPER = Logistic.presets["paper"]


def regression(count=100):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    logits = features @ torch.tensor([1.0, -0.5, 0.0], dtype=torch.float64)
    labels = torch.rand(count, generator=generator, dtype=torch.float64) < logits.sigmoid()
    return LogisticRegression(features, labels)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("batch", [32, None])
@pytest.mark.parametrize("excess", [0.3, 1.0])
def test_the_lr_gives_the_excess_by_the_law_of_the_discrete_update(momentum, batch, excess):
    curvature, num_data = 0.16, 690
    lr = lr_with_excess(excess, momentum, curvature, num_data, batch)
    noise = curvature / batch if batch else 0.0
    variance = SGHMC.stationary_variance(
        curvature, lr=lr, num_data=num_data, momentum=momentum, minibatch_variance=noise
    )
    assert variance * num_data * curvature == pytest.approx(1 + excess)


def test_scores_of_draws_whose_answers_are_known():
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((2, 400, 3))
    noise -= noise.mean(axis=1, keepdims=True)
    noise /= noise.std(axis=1, keepdims=True)  # each run has mean 0 and sd 1 exactly
    sd = np.array([0.5, 1.0, 2.0])
    ratios = np.array([0.5, 0.9, 1.2])
    shifts = np.array([[0.3, 0.0, -0.4], [-0.3, 0.0, 0.4]])
    mean = np.array([5.0, -1.0, 0.0])
    found = score(mean + sd * (ratios * noise + shifts[:, None]), mean, sd)
    assert found["mean_error"] == pytest.approx([math.sqrt(0.25 / 3)] * 2, rel=1e-4)
    assert found["sd_ratio"] == pytest.approx([0.9, 0.9])
    assert found["sd_worst"] == pytest.approx([2.0, 2.0])
    # Together the shifts are no error of the mean, but make the draws wider.
    pooled = np.sqrt(ratios**2 + shifts[0] ** 2)
    assert found["pooled"]["mean_error"] == pytest.approx(0, abs=1e-9)
    assert found["pooled"]["sd_ratio"] == pytest.approx(np.median(pooled), rel=1e-4)
    assert found["pooled"]["sd_worst"] == pytest.approx(1 / pooled[0], rel=1e-4)
    # The paper's formula without truncation is B / (1 + B * (error of the mean)^2 - moment).
    moments = ratios**2 + shifts[0] ** 2
    sizes = 400 / (1 + 400 * shifts[0] ** 2 - moments)
    assert found["ess_untruncated"] == pytest.approx([np.median(sizes)] * 2, rel=1e-3)
    # Independent draws, but for the shifts, which the usual rule does not see.
    assert 200 < found["ess_usual"][0] < 800
    assert 1 < found["ess_truncated"][0] < 100


@pytest.mark.parametrize("batch", [None, 1000], ids=["full", "batches"])
def test_a_chain_has_the_moments_of_the_reference(batch):
    """Small steps, and batches, drawn with replacement, of ten times the data: nearly exact.

    Three means, within SIGMAS standard errors: refused by chance once in 50,000 times. Sds are held
    to a tenth, which is 4 standard errors, and far less than a wrong prior or N would change them.
    """
    target = regression()
    found = reference(target, chains=64, warm_up=50, draws=200)
    settings = Settings(lr=0.3, momentum=0.8, cycles=None, batch=batch)
    schedule = Constant(6000, burn_in=500, keep=Keep(every=1))
    draws = sample(target, settings, schedule, seeds=[3])
    sizes = effective_sample_size(draws, "mean")
    mean, sd = np.array(found["mean"]), np.array(found["sd"])
    errors = np.abs(draws[0].mean(axis=0) - mean) / sd
    assert (errors < SIGMAS * np.sqrt(1 / sizes + found["standard_error"] ** 2)).all(), errors
    np.testing.assert_allclose(draws[0].std(axis=0), sd, rtol=0.1)
    assert found["r_hat"] < 1.01
    assert found["smallest_curvature"] < 1 / (100 * sd.max() ** 2) < found["largest_curvature"]


def test_a_seed_gives_the_same_chain_whatever_others_there_are():
    target = regression()
    settings = Settings(lr=0.3, momentum=0.0, cycles=None, batch=32)
    both = sample(target, settings, Constant(50, keep=Keep(every=1)), seeds=[0, 1])
    alone = sample(target, settings, Constant(50, keep=Keep(every=1)), seeds=[1])
    np.testing.assert_array_equal(both[1], alone[0])
    # No noise in common: 0.6 is 4 standard errors of the correlation of 49 increments.
    one, other = np.diff(both[:, :, 0])
    assert abs(np.corrcoef(one, other).item(1)) < 0.6


def test_at_momentum_zero_a_step_is_that_of_the_contract():
    target, lr, seed = regression(), 0.3, 1
    settings = Settings(lr, momentum=0.0, cycles=None, batch=32)
    found = sample(target, settings, Constant(BLOCK, keep=Keep(every=1)), seeds=[seed])[0, 0]
    start = torch.randn(1, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rows = torch.randint(100, (BLOCK, 32), generator=torch.Generator().manual_seed(seed))[0]
    (noise,) = Noise(seed).like([torch.empty(BLOCK, 1, 3, dtype=torch.float64)])
    # Prior N(0, I): the gradient of U / N has theta / N on top of the mean loss's.
    gradient = target.mean_loss_gradient(start, rows) + start / 100
    expected = start - lr * gradient + math.sqrt(2 * lr / 100) * noise[0]
    np.testing.assert_allclose(found, expected[0].numpy(), rtol=1e-12)


def test_the_paper_preset_keeps_the_draws_that_it_says():
    cyclical = PAPER.schedule(Settings(1.2, 0.0, 100, 32))
    decreasing = PAPER.schedule(Settings(1.2, 0.0, None, 32))
    assert cyclical.total_draws == 4950
    assert decreasing.total_draws == 5000
    scales = decreasing.table()["lr_scale"]
    assert (scales[:5001] == 1).all()  # constant, and then 1^-0.55
    assert scales[5001] == pytest.approx(2**-0.55)
    assert not cyclical.table()["collect"][:5001].any()
    assert cyclical.table()["collect"][5001:5100].all()


def trial(size, ratio, name):
    return {"ess_truncated": [size], "pooled": {"sd_ratio": ratio}, "choice": {"name": name}}


def test_the_best_choice_is_the_largest_size_of_those_with_the_right_spread():
    wide, right = trial(900.0, 1.2, "wide"), trial(300.0, 1.09, "right")
    slow, narrow = trial(100.0, 1.0, "slow"), trial(800.0, 0.9, "narrow")
    assert best_choice([wide, right, slow, narrow], 0.1) == {"name": "right"}
    assert best_choice([wide, right, slow, narrow], 0.2) == {"name": "wide"}
    assert best_choice([wide, narrow], 0.1) == {"name": "narrow"}  # the nearest


def test_a_choice_is_carried_over_by_curvature_and_number_of_data():
    choice = {"momentum": 0.9, "cycles": 10, "excess": 1.0}
    steep = {"largest_curvature": 0.4, "num_data": 1000}
    flat = {"largest_curvature": 0.2, "num_data": 1000}
    one, other = (carried_over(choice, found, None) for found in (steep, flat))
    assert other.lr == pytest.approx(2 * one.lr)
    assert (one.momentum, one.cycles, one.batch) == (0.9, 10, None)
    assert carried_over(choice, steep, 32).lr < one.lr


def test_settings_are_checked():
    with pytest.raises(ValueError, match="search_on must be one of 'heart', got 'german'"):
        LogisticConfig(datasets=("heart",), search_on="german")
    with pytest.raises(ValueError, match="search_seeds must be at least 1"):
        replace(PAPER, search_seeds=0)
    assert max(PAPER.seeds, 100) < SEARCH_SEED


def timeless(records):
    return {
        key: {name: value for name, value in record.items() if name != "seconds"}
        for key, record in records.items()
    }


def test_a_small_run_from_end_to_end_goes_on_where_it_was_stopped(tmp_path):
    experiment = find_experiments()["logistic"]
    keys = []

    def stop_after_ten(key, count, total):
        keys.append(key)
        if count == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, "smoke", tmp_path / "parts", on_job=stop_after_ten)
    parts = reproduce(
        experiment, "smoke", tmp_path / "parts", on_job=lambda key, *_: keys.append(key)
    )
    assert len(keys) == len(set(keys)) == len(parts.records)
    whole = reproduce(experiment, "smoke", tmp_path / "whole")
    assert timeless(parts.records) == timeless(whole.records)

    methods = [record["method"] for record in whole.records.values()]
    assert methods.count("reference") == 1
    assert methods.count("trial") == 4  # two choices for each of two sizes of batch
    for method in ("SGLD", "cSGLD", "SGHMC", "cSGHMC", "best"):
        assert methods.count(method) == 2
    best = whole.records["breast cancer, best, full batch"]
    trials = [
        record
        for record in whole.records.values()
        if record["method"] == "trial" and record["batch"] is None
    ]
    assert best["choice"] in [record["choice"] for record in trials]
    assert best["lr"] in [record["lr"] for record in trials]
    assert len(best["ess_truncated"]) == 2
    saved = json.loads((tmp_path / "whole" / "logistic.json").read_text())
    assert saved["finished"]
