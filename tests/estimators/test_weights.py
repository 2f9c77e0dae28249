"""Weights of rows and classes, folds, and the weights of cycles."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, make_moons

from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor, chains
from csgmcmc.estimators.ladder import SMOOTHING, Rung, gaussian_stacking, make_folds, make_ladder
from csgmcmc.estimators.network import Perceptron
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
    "random_state": 0,
}


@pytest.mark.parametrize(("count", "folds"), [(20, 5), (23, 5), (7, 3)])
def test_folds_partition_rows_with_equal_shares_of_labels(count, folds):
    labels = np.arange(count) % 3
    found = make_folds(labels, folds, np.random.RandomState(0))
    assert sorted(np.concatenate(found)) == list(range(count))
    for label in range(3):
        shares = [(labels[fold] == label).sum() for fold in found]
        assert max(shares) - min(shares) <= 1


def test_ladder_has_a_rung_for_each_width_and_kind_of_noise():
    assert make_ladder((0.1, 1.0), (1.0, 0.3), (False,)) == (Rung(0.1, 1.0), Rung(1.0, 0.3))
    assert make_ladder(2.0, 1.0, (True,)) == (Rung(2.0, 1.0, True),)
    found = make_ladder((0.1, 1.0, 4.0), 1.0, (True, False))
    assert found[:3] == tuple(Rung(scale, 1.0, True) for scale in (0.1, 1.0, 4.0))
    assert found[3:] == (Rung(0.1, 1.0), Rung(1.0, 1.0))


def test_gaussian_stacking_is_the_best_on_a_grid():
    """And keeps out a member whose large variance would hide all others' accuracy."""
    random = np.random.default_rng(0)
    targets = random.normal(size=(200, 1))
    means = np.stack([targets + 0.1 * random.normal(size=(200, 1)), 0 * targets])
    squares = means**2 + np.array([0.1, 1.0])[:, None, None] ** 2
    points = np.ones(200)
    weights, score = gaussian_stacking(means, squares, targets, points)

    def score_of(share: float) -> float:
        mean = (1 - share) * means[0] + share * means[1]
        variance = (1 - share) * squares[0] + share * squares[1] - mean**2
        found = -(np.log(variance) + (targets - mean) ** 2 / variance) / 2
        return float(found.mean() + SMOOTHING / 200 * np.log(share * (1 - share)))

    shares = np.linspace(1e-5, 0.5, 20_001)
    best = max(map(score_of, shares))
    assert score == pytest.approx(best, abs=1e-4)
    assert score_of(weights[1]) == pytest.approx(best, abs=1e-4)
    assert weights[1] < 0.01


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
    options = {**LINEAR, "noise": "constant"}
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


def test_stacking_prefers_wide_priors_on_clean_rows_and_noise_is_predicted_as_noise():
    """On noise, which rungs get the weight differs by seed; that their average is near 0.5, not."""
    features, classes = make_moons(200, noise=0.05, random_state=0)
    options: Any = {"random_state": 0, "epochs": 500}
    clean = BayesianMLPClassifier(**options).fit(features, classes).weights_.sum(0)
    random = np.random.default_rng(0)
    coin = BayesianMLPClassifier(**options).fit(features, random.integers(0, 2, 200))
    assert clean[-2:].sum() > 0.8
    assert np.abs(coin.predict_proba(features) - 0.5).mean() < 0.1


def test_single_prior_scale_uses_all_rows_and_equal_weights():
    features, classes = load_iris(return_X_y=True)
    estimator = BayesianMLPClassifier(**{**SMALL, "prior_scale": 1.0}).fit(features, classes)
    assert_allclose(estimator.weights_, [[0.5], [0.5]])
    assert estimator._run_to_check[1].param_groups[0]["num_data"] == 150


def test_networks_of_a_stack_equal_those_run_one_by_one():
    """Batched products, priors and temperatures are held to single networks: a user's module."""
    table: Any = load_iris(return_X_y=True)
    features, classes = (column[3:] for column in table)  # folds of different sizes
    options: Any = {**SMALL, "batch_size": 59, "temperature": (1.0, 0.3), "prior_scale": (1.0, 2.0)}
    one = BayesianMLPClassifier(**options).fit(features, classes)

    class Alone(torch.nn.Module):
        """The same network, hidden from what stacks perceptrons."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.network = Perceptron((inputs, 8, outputs), "silu")

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.network(rows)

    def same_priors(network: Any, prior_scale: float) -> dict[str, torch.Tensor]:
        found = network.network.precisions(prior_scale)
        return {f"network.{name}": value for name, value in found.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chains, "precisions_of", same_priors)
        other = BayesianMLPClassifier(**options, module=Alone).fit(features, classes)
    assert [*one.draws_] == [*other.draws_]
    for first, second in zip(one.draws_, other.draws_, strict=True):
        for name, value in first.tensors().items():
            found = second.tensors()[f"network.{name}"]
            torch.testing.assert_close(value, found, rtol=1e-3, atol=1e-4)
    assert_allclose(one.weights_, other.weights_, atol=1e-3)
    samplers = (each._run_to_check[1] for each in (one, other))
    for mine, theirs in zip(*(each.state.values() for each in samplers), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
