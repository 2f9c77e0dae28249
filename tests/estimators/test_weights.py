"""Weights of rows and classes, folds, and the weights of cycles."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_moons

from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from csgmcmc.estimators.chains import Rung, make_folds, make_ladder
from csgmcmc.posterior.weights import stacking_weights
from tests.estimators.small import SMALL

LINEAR = {
    "hidden_layer_sizes": (),
    "prior_scale": 1.0,
    "temperature": 1.0,
    "cycles": 1,
    "chains": 2,
    "exploration": 0.1,
    "draws_per_cycle": 200,
    "epochs": 2000,
    "batch_size": 200,
    "lr": 0.1,
    "random_state": 0,
}


@pytest.mark.parametrize(("count", "chains"), [(20, 5), (23, 5), (7, 3)])
def test_folds_partition_rows_with_equal_shares_of_labels(count, chains):
    labels = np.arange(count) % 3
    found = make_folds(labels, chains, np.random.RandomState(0))
    assert sorted(np.concatenate(found)) == list(range(count))
    for label in range(3):
        shares = [(labels[fold] == label).sum() for fold in found]
        assert max(shares) - min(shares) <= 1


def test_ladder_widens_and_last_cycle_has_second_temperature():
    found = make_ladder((0.1, 10.0), (0.3, 0.03), 4)
    assert_allclose([rung.prior_scale for rung in found], [0.1, 1.0, 10.0, 10.0])
    assert [rung.temperature for rung in found] == [0.3, 0.3, 0.3, 0.03]
    assert make_ladder(2.0, 1.0, 3) == (Rung(2.0, 1.0),) * 3
    assert make_ladder((1.0, 4.0), (1.0, 0.1), 2) == (Rung(4.0, 1.0), Rung(4.0, 0.1))


def test_row_of_weight_2_counts_as_two_rows():
    """The posterior of a linear model, whose mean has an error of a tenth of its spread."""
    random = np.random.default_rng(0)
    features = random.normal(size=(60, 2))
    classes = (features[:, 0] + random.normal(size=60) > 0).astype(int)
    counts = random.integers(0, 3, 60)
    weighted = BayesianMLPClassifier(**LINEAR).fit(features, classes, sample_weight=counts)
    repeated = np.repeat(np.arange(60), counts)
    plain = BayesianMLPClassifier(**LINEAR).fit(features[repeated], classes[repeated])
    unweighted = BayesianMLPClassifier(**LINEAR).fit(features, classes)
    one, other, third = (each.predict_proba(features) for each in (weighted, plain, unweighted))
    assert np.abs(one - other).max() < 0.03
    assert np.abs(one - third).max() > 0.06
    spreads = [float(each.predictive(features).spread.mean()) for each in (weighted, plain)]
    assert spreads[0] == pytest.approx(spreads[1], rel=0.15)


def test_rows_of_weight_0_are_ignored():
    table: Any = make_moons(60, noise=0.3, random_state=0)
    features, targets = table
    weights = np.arange(60) % 3 > 0
    one = BayesianMLPClassifier(**SMALL).fit(features, targets, sample_weight=weights)
    other = BayesianMLPClassifier(**SMALL).fit(features[weights], targets[weights])
    assert_allclose(one.predict_proba(features), other.predict_proba(features))


def test_larger_sample_weights_reduce_spread_of_regression():
    random = np.random.default_rng(0)
    features = random.normal(size=(50, 2))
    targets = features @ [1.0, 2.0] + 0.5 * random.normal(size=50)
    options = {**LINEAR, "lr": 0.05}
    one = BayesianMLPRegressor(**options).fit(features, targets)
    other = BayesianMLPRegressor(**options).fit(features, targets, sample_weight=np.full(50, 4.0))
    ratio = other.predictive(features).spread.mean() / one.predictive(features).spread.mean()
    assert float(ratio) == pytest.approx(0.5, rel=0.2)
    assert other.noise_std_ == pytest.approx(one.noise_std_, rel=0.15)


def test_balanced_classes_have_equal_weights():
    random = np.random.default_rng(0)
    features = random.normal(size=(200, 1))
    classes = (random.random(200) < 0.1).astype(int)
    options = {**LINEAR, "prior_scale": 3.0}
    usual = BayesianMLPClassifier(**options).fit(features, classes).predict_proba(features)
    balanced = BayesianMLPClassifier(**options, class_weight="balanced").fit(features, classes)
    assert usual[:, 1].mean() == pytest.approx(classes.mean(), abs=0.03)
    assert balanced.predict_proba(features)[:, 1].mean() == pytest.approx(0.5, abs=0.05)
    by_class = BayesianMLPClassifier(**options, class_weight={0: 1.0, 1: 9.0})
    odds = by_class.fit(features, classes).predict_proba(features)[:, 1].mean()
    share = 9 * classes.mean() / (9 * classes.mean() + 1 - classes.mean())
    assert odds == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("weights", [[-1.0] + [1.0] * 149, [1.0] * 10])
def test_invalid_sample_weights_raise(weights):
    features, classes = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=r"(?i)sample.?weight"):
        BayesianMLPClassifier(**SMALL).fit(features, classes, sample_weight=weights)


def test_stacking_counts_points_of_weight_2_twice():
    scores = np.log(np.random.default_rng(0).uniform(0.1, 1, (3, 40)))
    counts = np.random.default_rng(1).integers(0, 3, 40)
    assert_allclose(
        stacking_weights(scores, point_weights=counts),
        stacking_weights(np.repeat(scores, counts, axis=1)),
        atol=1e-3,
    )


def test_stacking_smoothing_is_dirichlet_prior():
    """Held to a grid over the weights of two groups."""
    scores = np.log(np.array([[0.9, 0.8, 0.7, 0.9], [0.1, 0.3, 0.2, 0.2]]))
    assert stacking_weights(scores)[1] < 1e-3
    shares = np.linspace(1e-4, 1 - 1e-4, 20_001)
    mixed = np.log(np.exp(scores[0])[:, None] * (1 - shares) + np.exp(scores[1])[:, None] * shares)
    for smoothing in (0.1, 1.0):
        density = mixed.sum(0) + smoothing * (np.log(shares) + np.log(1 - shares))
        found = stacking_weights(scores, smoothing=smoothing)[1]
        assert found == pytest.approx(shares[density.argmax()], abs=1e-3)


def test_stacking_prefers_wide_priors_on_clean_rows_and_narrow_ones_on_noise():
    features, classes = make_moons(200, noise=0.05, random_state=0)
    options = {"random_state": 0, "temperature": 0.3, "cycles": 5, "epochs": 800}
    clean = BayesianMLPClassifier(**options).fit(features, classes).cycle_weights_
    random = np.random.default_rng(0)
    coin = BayesianMLPClassifier(**options).fit(features, random.integers(0, 2, 200))
    assert clean[-2:].sum() > 0.8
    assert coin.cycle_weights_[:2].sum() > 0.6
    assert np.abs(coin.predict_proba(features) - 0.5).max() < 0.2


def test_single_prior_scale_uses_all_rows_and_equal_weights():
    features, classes = load_iris(return_X_y=True)
    estimator = BayesianMLPClassifier(**{**SMALL, "prior_scale": 1.0, "temperature": 1.0})
    estimator.fit(features, classes)
    assert_allclose(estimator.cycle_weights_, [0.5, 0.5])
    assert estimator._last_run[1].param_groups[0]["num_data"] == 150


def test_stacked_perceptrons_equal_modules_run_one_by_one():
    """The stacked matrices are held to the plain network, which is a user's own module."""
    table: Any = load_iris(return_X_y=True)
    features, classes = (column[3:] for column in table)  # folds of different sizes
    made = iter(range(100))

    def same_start(inputs: int, outputs: int) -> torch.nn.Module:
        from csgmcmc.estimators.network import perceptron  # noqa: PLC0415

        generator = torch.Generator().manual_seed(seed + next(made) % 2)
        return perceptron(inputs, 8, outputs, "relu", generator)

    options = {**SMALL, "lr": 0.05, "chains": 2, "batch_size": 59}
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    one = BayesianMLPClassifier(**options).fit(features, classes)
    other = BayesianMLPClassifier(**options, module=same_start).fit(features, classes)
    for first, second in zip(one.draws_, other.draws_, strict=True):
        assert (first.chain_id, first.step) == (second.chain_id, second.step)
        for name, value in first.tensors().items():
            torch.testing.assert_close(value, second.tensors()[name], rtol=1e-3, atol=1e-4)
    assert_allclose(one.cycle_weights_, other.cycle_weights_, atol=1e-3)
