import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.datasets import make_friedman1
from sklearn.metrics import r2_score
from torch import nn

from csgmcmc.estimators import BayesianMLPRegressor
from csgmcmc.estimators.network import WithNoise
from csgmcmc.samplers import SGHMC
from tests.estimators.small import SMALL


def line(noise: float, rows: int = 200, seed: int = 0):
    """Rows of three features, whose target is linear in them."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, 3))
    return features, features @ [1.0, -2.0, 0.5] + noise * generator.normal(size=rows)


@pytest.mark.parametrize("noise", [1.0, 0.01])
def test_spread_of_linear_model_equals_exact_posterior(noise):
    features, targets = line(noise)
    estimator = BayesianMLPRegressor(
        hidden_layer_sizes=(),
        prior_scale=1.0,
        lr=0.05,
        batch_size=200,
        epochs=3000,
        chains=1,
        cycles=1,
        exploration=0.1,
        draws_per_cycle=300,
        random_state=0,
    ).fit(features, targets)
    assert estimator.noise_std_ == pytest.approx(noise, rel=0.1)

    # Given the noise, the posterior is a Gaussian; in the units in which it was sampled:
    design = np.column_stack([estimator.scaler_.transform(features), np.ones(len(features))])
    variance = (estimator.noise_std_ / estimator.target_scale_) ** 2
    covariance = np.linalg.inv(design.T @ design / variance + np.eye(4))
    weights = covariance @ design.T @ (targets - estimator.target_mean_)
    exact = estimator.target_scale_**2 * np.einsum("ij,jk,ik->i", design, covariance, design)

    found = estimator.predictive(features)
    # Between seeds the ratio has a standard deviation of some 9%: draws late in a cycle are alike.
    assert found.spread.square().mean() == pytest.approx(exact.mean(), rel=0.2)
    means = estimator.target_mean_ + design @ weights / variance
    assert np.sqrt(np.mean((found.mean.numpy() - means) ** 2)) < 0.3 * np.sqrt(exact.mean())


def test_step_sizes_follow_noise_variance_and_velocities_its_root():
    """Then a velocity over its own standard deviation, sqrt(lr * T / N), is left as it is."""
    estimator = BayesianMLPRegressor(lr=0.2)
    model = WithNoise(nn.Linear(3, 1), 1)
    sampler = SGHMC(estimator._groups(model), lr=0.2, num_data=10, seed=0)
    starts = [group["initial_lr"] for group in sampler.param_groups[:-1]]
    before_step = estimator._before_step(model, sampler)
    means, variances = model(torch.ones(4, 3))
    estimator._loss((means, variances), (torch.zeros(4, 1), torch.ones(4))).backward()
    before_step(1.0)
    sampler.step()
    before = {param: sampler.state[param]["velocity"].clone() for param in model.parameters()}
    with torch.no_grad():
        model.log_variance.fill_(math.log(0.25))
    before_step(1.0)
    *weights, noise = sampler.param_groups
    shares = [group["initial_lr"] / start for group, start in zip(weights, starts, strict=True)]
    assert shares == pytest.approx([0.25] * len(weights))
    assert noise["initial_lr"] == 0.2
    for param, velocity in before.items():
        share = 1.0 if param is model.log_variance else 0.5
        torch.testing.assert_close(sampler.state[param]["velocity"], share * velocity)


def test_standard_deviation_combines_noise_and_spread():
    features, targets = line(0.5)
    estimator = BayesianMLPRegressor(**SMALL).fit(features, targets)
    mean, std = estimator.predict(features, return_std=True)
    found = estimator.predictive(features, members=True)
    assert found.members is not None
    weights = estimator.posterior_.weights
    assert_allclose(np.average(found.members, axis=0, weights=weights), mean, atol=1e-9)
    spread = np.average((found.members.numpy() - mean) ** 2, axis=0, weights=weights)
    assert_allclose(std**2, spread + estimator.noise_std_**2, rtol=1e-6)
    assert_allclose(mean, estimator.predict(features))


def test_quantiles_are_those_of_the_mixture_of_all_draws():
    features, targets = line(0.5)
    estimator = BayesianMLPRegressor(**SMALL).fit(features, targets)
    levels = [0.05, 0.5, 0.95]
    found = estimator.predict_quantiles(features[:5], levels)
    assert found.shape == (3, 5)
    means = estimator.predictive(features[:5], members=True).members
    assert means is not None
    stds = [
        estimator.target_scale_ * draw.tensors()["log_variance"].exp().sqrt().item()
        for draw in estimator.draws_
    ]
    below = norm.cdf((found[:, None] - means.numpy()) / np.array(stds)[:, None])
    cumulative = np.einsum("d,qdr->qr", estimator.posterior_.weights, below)
    assert_allclose(cumulative, np.repeat(levels, 5).reshape(3, 5), atol=1e-9)
    assert_allclose(estimator.predict_interval(features[:5], 0.9), found[[0, 2]])
    for wrong in (0.0, 1.0, [0.5, 2.0]):
        with pytest.raises(ValueError, match="q must be"):
            estimator.predict_quantiles(features, wrong)
    with pytest.raises(ValueError, match="level must be"):
        estimator.predict_interval(features, 1.0)


def test_several_outputs_have_noise_of_their_own():
    features, targets = line(0.0)
    random = np.random.default_rng(1)
    both = np.stack([targets, -10 * targets], axis=1) + [0.3, 20] * random.normal(size=(200, 2))
    estimator = BayesianMLPRegressor(random_state=0, epochs=400).fit(features, both)
    mean, std = estimator.predict(features, return_std=True)
    assert mean.shape == std.shape == (200, 2)
    assert estimator.predict_interval(features).shape == (2, 200, 2)
    assert_allclose(estimator.noise_std_, [0.3, 20], rtol=0.25)
    assert estimator.score(features, both) > 0.7
    assert estimator.check(features, both).numbers["nll"] < 2


def test_check_of_fitted_estimator():
    features, targets = line(0.5, rows=300)
    estimator = BayesianMLPRegressor(random_state=0, epochs=800).fit(features[:200], targets[:200])
    found = estimator.check(features[200:], targets[200:])
    assert found.learned.holds
    assert "temperature" in found.sampling.words
    assert found.calibrated.holds is not False
    with pytest.raises(ValueError, match="X has"):
        estimator.check(features, targets[:200])
    with pytest.raises(ValueError, match="y has"):
        estimator.check(features, np.stack([targets, targets], axis=1))


def test_intervals_hold_what_they_promise():
    features, targets = make_friedman1(500, noise=1.0, random_state=0)
    estimator = BayesianMLPRegressor(random_state=0)
    estimator.fit(features[:300], targets[:300])
    mean, std = estimator.predict(features[300:], return_std=True)
    inside = np.abs(targets[300:] - mean) < 1.645 * std
    # 0.9 is promised; 200 rows would give less than 0.82 to one in a thousand honest ones.
    assert 0.82 < inside.mean() <= 0.98
    assert estimator.score(features[300:], targets[300:]) > 0.8
    assert 0.5 < estimator.noise_std_ < 1.6


def test_the_units_of_the_targets_do_not_matter():
    features, targets = line(0.5)
    one = BayesianMLPRegressor(**SMALL).fit(features, targets)
    other = BayesianMLPRegressor(**SMALL).fit(features, 1024 * targets)
    for first, second in zip(
        one.predict(features, return_std=True),
        other.predict(features, return_std=True),
        strict=True,
    ):
        assert_allclose(1024 * first, second, rtol=1e-9)
    assert_allclose(
        one.predictive(features).entropy + np.log(1024), other.predictive(features).entropy
    )


def test_targets_that_are_all_the_same():
    features, _ = line(0.0)
    estimator = BayesianMLPRegressor(**SMALL).fit(features, np.full(200, 3.0))
    mean, std = estimator.predict(features, return_std=True)
    assert np.abs(mean - 3.0).max() < 1.0
    assert np.isfinite(std).all()


@pytest.mark.parametrize("sampler", ["SGLD", "SGNHT", "PSGLD"])
def test_other_samplers_sample_it_too(sampler):
    features, targets = line(0.2)
    lr = 0.01 if sampler == "PSGLD" else 0.1
    options = {**SMALL, "epochs": 100, "sampler": sampler, "lr": lr}
    estimator = BayesianMLPRegressor(**options).fit(features, targets)
    assert estimator.score(features, targets) > 0.9
    assert estimator.noise_std_ < 0.6


def test_its_predictions_are_tensors_in_double_precision():
    features, targets = line(0.2)
    estimator = BayesianMLPRegressor(**SMALL).fit(features, targets)
    assert estimator.predictive(features).mean.dtype == torch.float64


def test_targets_that_are_no_numbers_are_refused():
    features, _ = line(0.2)
    with pytest.raises(ValueError, match=r"y must be numbers, got .*'red'.*: for classes"):
        BayesianMLPRegressor(**SMALL).fit(features, ["red"] * len(features))


@pytest.mark.parametrize(("rows", "width"), [(10, 50), (30, 200), (150, 200)])
def test_it_finds_a_step_size_for_few_rows_and_wide_layers(rows, width):
    features, targets = line(0.5, rows=rows)
    estimator = BayesianMLPRegressor(width, epochs=600, random_state=0)
    estimator.fit(features, targets)
    assert 0.1 < estimator.noise_std_ < 1.5 * targets.std()


@pytest.mark.parametrize("lr", [2.0, 20.0])
def test_given_lr_that_is_too_large_raises(lr):
    features, targets = line(0.5, rows=30)
    with pytest.raises(ValueError, match=f"lr={lr:g}"):
        BayesianMLPRegressor(lr=lr, epochs=600, random_state=0).fit(features, targets)


def test_suggested_lr_that_diverges_is_lowered(monkeypatch):
    features, targets = line(0.5, rows=100)
    monkeypatch.setattr(BayesianMLPRegressor, "_suggest_lr", lambda *_: 100.0)
    monkeypatch.setattr(BayesianMLPRegressor, "_max_lr", 2.0)
    estimator = BayesianMLPRegressor(epochs=300, random_state=0).fit(features, targets)
    assert estimator.lr_ in [pytest.approx(2.0 * 0.3**attempt) for attempt in (1, 2, 3)]
    assert estimator.noise_std_ < 1.0


def test_a_chain_that_finds_no_noise_does_not_slow_down_the_others():
    """Step sizes follow the noise variance, of which each chain has its own."""
    features, targets = line(0.0, rows=60)
    estimator = BayesianMLPRegressor(random_state=0).fit(features, targets)
    assert estimator.score(features, targets) > 0.99
    for chain_id in range(3):
        last = [draw for draw in estimator.draws_ if draw.chain_id == chain_id][-1]
        assert last.tensors()["log_variance"].exp().sqrt().item() < 0.1


@pytest.mark.parametrize("rows", [2, 12])
def test_exactly_fitted_rows_keep_steps_and_noise_positive(rows):
    features, _ = line(0.0, rows=rows)
    estimator = BayesianMLPRegressor(random_state=0).fit(features, np.arange(rows) % 2)
    assert np.isfinite(estimator.predict(features)).all()
    assert estimator._last_run[1].param_groups[0]["initial_lr"] > 0


@pytest.mark.slow
def test_output_learned_first_does_not_prevent_learning_others():
    """The steps become small with the smallest noise; R² of the sine was 0.14, alone 0.98."""
    rng = np.random.default_rng(1)
    features, noise = rng.uniform(-2, 2, (400, 3)), rng.normal(size=(400, 2))
    sine, product = np.sin(2 * features[:, 0]), features[:, 1] * features[:, 2]
    targets = np.stack([sine, product], 1) + [0.1, 0.2] * noise
    estimator = BayesianMLPRegressor(random_state=0).fit(features[:250], targets[:250])
    found = r2_score(targets[250:], estimator.predict(features[250:]), multioutput="raw_values")
    assert np.min(found) > 0.9, found
