from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.datasets import make_friedman1
from sklearn.metrics import r2_score
from torch import nn

from csgmcmc.errors import DivergedError
from csgmcmc.estimators import BayesianMLPRegressor
from csgmcmc.schedules import Constant
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
        noise="constant",
        prior_scale=1.0,
        temperature=1.0,
        batch_size=200,
        epochs=4000,
        chains=4,
        cycles=1,
        exploration=0.2,
        draws_per_cycle=200,
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
    assert found.spread.square().mean() == pytest.approx(exact.mean(), rel=0.27)
    means = estimator.target_mean_ + design @ weights / variance
    assert np.sqrt(np.mean((found.mean.numpy() - means) ** 2)) < 0.3 * np.sqrt(exact.mean())


def heteroscedastic(rows: int, seed: int = 0):
    """Rows of two features, and noise whose standard deviation triples with each unit of one."""
    generator = np.random.default_rng(seed)
    features = generator.uniform(-1, 1, size=(rows, 2))
    scale = 0.3 * 3.0 ** features[:, 0]
    means = np.sin(3 * features[:, 0]) + features[:, 1]
    return features, means + scale * generator.normal(size=rows), scale


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["per row", "auto"])
def test_noise_of_each_row_is_recovered_and_intervals_cover_every_region(noise):
    """Coverage of 4,000 rows a region: chance alone misses by 0.03 once in 10^9."""
    features, targets, _ = heteroscedastic(3000)
    estimator = BayesianMLPRegressor(noise=noise, max_seconds=1e6, random_state=0)
    estimator.fit(features, targets)
    rows, values, scale = heteroscedastic(12_000, seed=1)
    found = estimator.predictive(rows).noise_variance.sqrt().numpy()
    low, high = estimator.predict_interval(rows, 0.9)
    inside = (low < values) & (values < high)
    for region in range(3):
        own = np.digitize(rows[:, 0], [-1 / 3, 1 / 3]) == region
        error = np.log(found[own] / scale[own])
        assert abs(error.mean()) < 0.1
        assert np.sqrt(np.mean(error**2)) < 0.1
        assert inside[own].mean() == pytest.approx(0.9, abs=0.03)


def test_noise_per_row_is_chosen_where_it_differs_and_is_better():
    features, targets, _ = heteroscedastic(400)
    options: Any = {"epochs": 300, "random_state": 0}
    auto = BayesianMLPRegressor(**options).fit(features, targets)
    per_row = [rung.per_row for rung in auto.ladder_]
    assert auto.weights_.sum(0)[per_row].sum() > 0.9
    constant = BayesianMLPRegressor(**options, noise="constant").fit(features, targets)
    rows, values, scale = heteroscedastic(4000, seed=1)
    scores = []
    for estimator in (auto, constant):
        mean, std = estimator.predict(rows, return_std=True)
        scores.append(norm.logpdf(values, mean, std).mean())
    assert scores[0] > scores[1] + 0.05
    assert np.corrcoef(auto.predict(rows, return_std=True)[1], scale)[0, 1] > 0.9
    assert constant.predictive(rows).noise_variance.std() == pytest.approx(0, abs=1e-9)


def test_standard_deviation_combines_noise_and_spread():
    features, targets = line(0.5)
    estimator = BayesianMLPRegressor(**SMALL, noise="constant").fit(features, targets)
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
    mixture = estimator.predictive(features[:5], members=True).mixture
    assert mixture is not None
    means, stds = (mixture.parameters[name].numpy() for name in ("loc", "scale"))
    below = norm.cdf((found[:, None] - means) / stds)
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
    estimator = BayesianMLPRegressor(random_state=0, epochs=300).fit(features, both)
    mean, std = estimator.predict(features, return_std=True)
    assert mean.shape == std.shape == (200, 2)
    assert estimator.predict_interval(features).shape == (2, 200, 2)
    assert_allclose(estimator.noise_std_, [0.3, 20], rtol=0.25)
    assert estimator.score(features, both) > 0.7
    assert estimator.check(features, both).numbers["nll"] < 2


def test_check_of_fitted_estimator():
    features, targets = line(0.5, rows=500)
    estimator = BayesianMLPRegressor(random_state=0, epochs=300).fit(features[:200], targets[:200])
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


def test_its_predictions_are_tensors_in_double_precision():
    features, targets = line(0.2)
    estimator = BayesianMLPRegressor(**SMALL).fit(features, targets)
    assert estimator.predictive(features).mean.dtype == torch.float64


def test_targets_that_are_no_numbers_are_refused():
    features, _ = line(0.2)
    with pytest.raises(ValueError, match=r"y must be numbers, got .*'red'.*: for classes"):
        BayesianMLPRegressor(**SMALL).fit(features, ["red"] * len(features))


def test_default_lr_that_diverges_is_lowered(monkeypatch):
    features, targets = line(0.5, rows=100)
    run, tried = BayesianMLPRegressor._run, []

    def diverges_at_first(estimator, *arguments):
        tried.append(estimator.lr_)
        if len(tried) < 3:
            raise DivergedError("the loss", Constant(4).tick(2), estimator.lr_, [0])
        return run(estimator, *arguments)

    monkeypatch.setattr(BayesianMLPRegressor, "_run", diverges_at_first)
    estimator = BayesianMLPRegressor(**SMALL).fit(features, targets)
    assert tried == pytest.approx([0.02, 0.006, 0.0018])
    assert estimator.lr_ == tried[-1]


def test_nearly_noiseless_targets_are_fitted():
    features, targets = line(0.0, rows=100)
    estimator = BayesianMLPRegressor(random_state=0, epochs=600).fit(features[:60], targets[:60])
    mean, std = estimator.predict(features, return_std=True)
    assert np.isfinite(std).all()
    assert estimator.score(features[60:], targets[60:]) > 0.99
    score = norm.logpdf(targets[60:], mean[60:], std[60:]).mean()
    assert score > 0  # a standard deviation of 0.4 has a score below


@pytest.mark.parametrize("rows", [2, 12])
def test_few_rows_that_are_fitted_exactly(rows):
    features, _ = line(0.0, rows=rows)
    estimator = BayesianMLPRegressor(random_state=0, epochs=200).fit(features, np.arange(rows) % 2)
    assert np.isfinite(estimator.predict(features, return_std=True)).all()


def test_extreme_numbers_do_not_determine_predictions():
    """A column with heavy tails gave means far outside of the targets."""
    rng = np.random.default_rng(0)
    features, noise = rng.normal(size=(600, 3)), 0.1 * rng.normal(size=600)
    features[:, 2] = rng.standard_cauchy(600)
    targets = np.sin(features[:, 0]) + np.tanh(features[:, 2]) + noise
    estimator = BayesianMLPRegressor(random_state=0, epochs=200).fit(features[:300], targets[:300])
    assert np.abs(features[300:, 2]).max() > 100
    errors = estimator.predict(features[300:]) - targets[300:]
    assert np.abs(errors).max() < 10  # it was 38


@pytest.mark.parametrize("noise", ["constant", "per row"])
def test_module_with_either_kind_of_noise(noise):
    features, targets = line(0.3)
    options = {**SMALL, "module": nn.Linear if noise == "per row" else nn.Linear(3, 1)}
    estimator = BayesianMLPRegressor(**{**options, "epochs": 100}, noise=noise)
    estimator.fit(features, targets)
    assert estimator.score(features, targets) > 0.9
    variance = estimator.predictive(features).noise_variance
    varies = variance.std() > 1e-6 * variance.mean()
    assert varies == (noise == "per row")
    with pytest.raises(ValueError, match="noise must be"):
        BayesianMLPRegressor(**SMALL, noise="some").fit(features, targets)


@pytest.mark.slow
def test_output_learned_first_does_not_prevent_learning_others():
    """R² of the sine was 0.14 where one step size followed the smallest noise; alone 0.98."""
    rng = np.random.default_rng(1)
    features, noise = rng.uniform(-2, 2, (400, 3)), rng.normal(size=(400, 2))
    sine, product = np.sin(2 * features[:, 0]), features[:, 1] * features[:, 2]
    targets = np.stack([sine, product], 1) + [0.1, 0.2] * noise
    estimator = BayesianMLPRegressor(random_state=0).fit(features[:250], targets[:250])
    found = r2_score(targets[250:], estimator.predict(features[250:]), multioutput="raw_values")
    assert np.min(found) > 0.9, found
