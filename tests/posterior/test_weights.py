"""Weights of cycles and draws, against exact values."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from csgmcmc import Posterior
from csgmcmc.posterior import Gaussian
from csgmcmc.posterior.members import MAX_BUFFERED
from csgmcmc.posterior.weights import harmonic_weights, stacking_weights
from tests.posterior.support import in_memory, mlp, random
from tests.support import SIGMAS

MASSES = np.array([0.6, 0.3, 0.1])


def shares(weights, groups):
    return np.array([weights[groups == group].sum() for group in np.unique(groups)])


def test_harmonic_weights_by_hand():
    # 1/L is 2, 4 and 5, 5: harmonic means 1/3 and 1/5.
    weights = harmonic_weights(np.log([1 / 2, 1 / 4, 1 / 5, 1 / 5]), [0, 0, 1, 1])
    assert weights == pytest.approx([5 / 16, 5 / 16, 3 / 16, 3 / 16])
    # At T = 1/2 likelihoods are squared: 1/L is 4, 16 and 25, 25.
    warm = harmonic_weights(np.log([1 / 2, 1 / 4, 1 / 5, 1 / 5]), [0, 0, 1, 1], temperature=0.5)
    assert shares(warm, np.array([0, 0, 1, 1])) == pytest.approx([25 / 35, 10 / 35])
    assert harmonic_weights([-1.0, -1.0, -9.0], [0, 1, -1]) == pytest.approx([0.5, 0.5, 0])


@given(shift=st.floats(-1e6, 1e6))
def test_harmonic_weights_depend_only_on_differences_and_never_overflow(shift):
    log_likelihoods = np.array([0.0, -0.5, -1.0, -3.0])
    expected = harmonic_weights(log_likelihoods, [0, 0, 1, 1])
    assert harmonic_weights(log_likelihoods + shift, [0, 0, 1, 1]) == pytest.approx(expected)


def test_one_cycle_of_a_network_gets_all_of_the_harmonic_weight():
    weights = harmonic_weights([-10_250.0, -10_300.0, -10_120.0, -10_110.0], [0, 0, 1, 1])
    assert np.isfinite(weights).all()
    assert weights == pytest.approx([0, 0, 0.5, 0.5], abs=1e-12)


def test_cycle_with_a_draw_of_likelihood_0_gets_weight_0():
    assert harmonic_weights([-1.0, -np.inf, -5.0], [0, 0, 1]) == pytest.approx([0, 0, 1])
    with pytest.raises(ValueError, match="no group has a weight"):
        harmonic_weights([-np.inf, -np.inf], [0, 1])


def test_harmonic_weights_recover_masses_where_prior_masses_are_equal_and_likelihoods_broad():
    """Here the variance of 1/L is finite, and the evidence is known exactly.

    Two regions of prior N(c, 1) with half of the prior each, and a likelihood exp(-x^2/8) in each,
    of different heights.
    """
    generator = np.random.default_rng(1)
    count, heights = 20_000, np.array([1.0, 3.0])
    offsets = np.sqrt(0.8) * generator.normal(size=(2, count))  # the posterior in each region
    log_likelihoods = np.log(heights)[:, None] - offsets**2 / 8
    groups = np.repeat([0, 1], count)
    found = shares(harmonic_weights(log_likelihoods.ravel(), groups), groups)
    # Evidence is the height times the same integral. 1/L = exp(x^2/8) has relative variance
    # (1 - 0.2)/sqrt(1 - 0.4) - 1 = 0.0328 under N(0, 0.8).
    exact = heights / heights.sum()
    tolerance = SIGMAS * exact.prod() * np.sqrt(2 * 0.0328 / count)
    assert abs(found[0] - exact[0]) < tolerance


def test_stacking_recovers_the_shares_of_a_mixture_of_predictions():
    generator = np.random.default_rng(2)
    means, points = np.array([-2.0, 0.0, 2.0]), 20_000
    targets = means[generator.choice(3, points, p=MASSES)] + generator.normal(size=points)
    log_scores = -0.5 * (targets - means[:, None]) ** 2 - 0.5 * np.log(2 * np.pi)
    weights = stacking_weights(log_scores)
    # Maximum likelihood of the shares: their Fisher information gives the standard errors.
    ratios = np.exp(log_scores - np.logaddexp.reduce(np.log(MASSES)[:, None] + log_scores, axis=0))
    contrasts = ratios[:2] - ratios[2]
    errors = np.sqrt(np.diag(np.linalg.inv(contrasts @ contrasts.T)))
    assert (np.abs(weights - MASSES)[:2] < SIGMAS * errors).all()


@given(seed=st.integers(0, 10_000), draws=st.integers(1, 12), points=st.integers(1, 60))
def test_no_other_weights_have_a_better_held_out_score(seed, draws, points):
    generator = np.random.default_rng(seed)
    log_scores = generator.normal(scale=5, size=(draws, points)) - 1e4

    def score(weights):
        with np.errstate(divide="ignore"):
            return np.logaddexp.reduce(np.log(weights)[:, None] + log_scores, axis=0).mean()

    weights = stacking_weights(log_scores)
    assert weights.min() >= 0
    assert weights.sum() == pytest.approx(1)
    others = generator.dirichlet(np.ones(draws), size=20)
    corners = np.eye(draws)
    assert score(weights) + 2e-4 >= max(map(score, [*others, *corners]))


@given(seed=st.integers(0, 10_000), smoothing=st.sampled_from([0.0, 0.1, 2.0]))
def test_stacking_weights_are_optimal(seed, smoothing):
    """The objective is concave: no weights are better by more than its largest slope."""
    generator = np.random.default_rng(seed)
    count, points = generator.integers(2, 30), generator.integers(2, 200)
    scores = generator.normal(scale=generator.choice([0.1, 1, 10]), size=(count, points))
    weights = stacking_weights(scores, smoothing=smoothing)
    likelihoods = np.exp(scores - scores.max(0))
    slope = (likelihoods / (weights @ likelihoods)).mean(1)
    if smoothing:
        slope += smoothing / points / weights
    assert slope.max() - weights @ slope < 1.01e-4


def test_stacking_of_groups_shares_the_weight_of_a_group_among_its_draws():
    # On half of the points group 0 is right, on the rest group 1; its second draw never is.
    log_scores = np.log([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8]])
    weights = stacking_weights(log_scores, [0, 0, 1])
    assert weights[0] == weights[1]
    # Grouped: maximise log(0.2 + 0.7 w) + log(0.8 - 0.7 w), whose best w is 0.6 / 1.4.
    assert 2 * weights[0] == pytest.approx(0.6 / 1.4, abs=0.01)
    assert stacking_weights(log_scores, [0, -1, -1]) == pytest.approx([1, 0, 0])


def test_invalid_log_likelihoods_and_groups():
    with pytest.raises(ValueError, match="log_likelihoods and groups must"):
        harmonic_weights([1.0, 2.0], [0, 0, 1])
    with pytest.raises(ValueError, match="log_likelihoods must"):
        harmonic_weights([1.0, np.nan], [0, 1])
    with pytest.raises(ValueError, match="temperature must"):
        harmonic_weights([1.0], [0], temperature=0)
    with pytest.raises(ValueError, match="groups must"):
        harmonic_weights([1.0], [-1])
    with pytest.raises(ValueError, match="likelihood 0 under every draw"):
        stacking_weights([[-np.inf, 0.0], [-np.inf, 0.0]])
    with pytest.raises(ValueError, match="log_scores must"):
        stacking_weights([1.0, 2.0])


def test_weight_of_a_group_is_divided_among_its_draws():
    weights = harmonic_weights(np.log([1 / 3, 1 / 2, 1 / 4, 1 / 3]), [7, 2, 2, 2])
    assert weights == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])  # all harmonic means are 1/3


def test_the_prediction_of_a_group_is_the_mean_of_its_draws():
    # Means 0.5, 0.5 beside 0.2, 0.9: the best w of log(0.2 + 0.3 w) + log(0.9 - 0.4 w). Of means of
    # logarithms, 0.3 and 0.3, it would be 0.
    log_scores = np.log([[0.9, 0.1], [0.1, 0.9], [0.2, 0.9]])
    weights = stacking_weights(log_scores, [0, 0, 1])
    assert weights == pytest.approx([0.19 / 0.48, 0.19 / 0.48, 0.05 / 0.24], abs=0.01)


def test_dominated_draw_gets_stacking_weight_0():
    weights = stacking_weights(np.log([[0.5, 0.5, 0.5], [0.1, 0.4, 0.3]]))
    assert weights == pytest.approx([1, 0], abs=1e-3)
    assert stacking_weights([[-np.inf, 0.0], [0.0, -np.inf]]) == pytest.approx([0.5, 0.5], abs=0.01)


def test_invalid_log_scores():
    with pytest.raises(ValueError, match="log_scores must"):
        stacking_weights(np.zeros((2, 0)))
    with pytest.raises(ValueError, match="log_scores must"):
        stacking_weights([[0.0, np.nan]])
    with pytest.raises(ValueError, match="log_scores and groups must"):
        stacking_weights([[0.0], [1.0]], [0])
    with pytest.raises(ValueError, match="groups must"):
        stacking_weights([[0.0]], [-1])


@pytest.mark.parametrize("likelihood", ["categorical", Gaussian(variance=0.1)])
def test_weights_below_the_precision_of_the_model_are_0(likelihood):
    """Also where draws that are averaged together have no others."""
    draws = in_memory(mlp, MAX_BUFFERED + 3)
    weights = np.r_[np.ones(MAX_BUFFERED), 1e-60, 1e-200, 0]
    posterior = Posterior(mlp(), draws, weights, likelihood=likelihood)
    assert posterior.weights[-3:].tolist() == [0, 0, 0]
    inputs = random(5, 4, dtype=torch.float32)
    found = posterior.predict(inputs)
    few = Posterior(mlp(), list(draws)[:MAX_BUFFERED], likelihood=likelihood)
    torch.testing.assert_close(found.entropy, few.predict(inputs).entropy)
    assert found.spread.isfinite().all()
