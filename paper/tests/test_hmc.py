"""The reference sampler, held to answers that are known without it."""

import math

import numpy as np
import pytest
import torch

from csgmcmc.diagnostics import effective_sample_size, r_hat
from paper.hmc import hmc, laplace
from paper.targets import GaussianTarget, LogisticRegression, Target
from tests.support import SIGMAS

RUN = {"chains": 64, "warm_up": 50, "draws": 200, "seed": 0}


def correlated():
    scales = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64)
    correlation = torch.tensor(
        [[1.0, 0.9, 0.0], [0.9, 1.0, -0.3], [0.0, -0.3, 1.0]], dtype=torch.float64
    )
    mean = torch.tensor([3.0, -1.0, 0.5], dtype=torch.float64)
    return GaussianTarget(mean, correlation * scales[:, None] * scales)


def small_regression():
    """Two coefficients and few data: far from Gaussian."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    labels = torch.tensor([1, 1, 1, 0, 1, 1])
    return LogisticRegression(features, labels, prior_variance=9.0)


def moments_on_a_grid(target, half_width=25.0, count=1001):
    """Mean and sd by summing the density over a grid: exact to many digits where it is smooth."""
    line = torch.linspace(-half_width, half_width, count, dtype=torch.float64)
    points = torch.cartesian_prod(line, line)
    weights = torch.softmax(-target.potential(points), dim=0)
    mean = weights @ points
    return mean, (weights @ (points - mean).square()).sqrt()


def assert_moments(draws, mean, sd):
    """Means, and sds by way of squares, within SIGMAS standard errors by the draws' own ESS."""
    scaled = (draws.numpy() - mean.numpy()) / sd.numpy()
    for values, expected in ((scaled, 0.0), (scaled**2, 1.0)):
        sizes = effective_sample_size(values, "mean")
        errors = np.abs(values.mean(axis=(0, 1)) - expected)
        assert (errors < SIGMAS * values.std(axis=(0, 1)) / np.sqrt(sizes)).all(), errors


def test_a_gaussian_gives_its_mean_and_covariance():
    """The guide is wrong by a factor in each direction, so that the path is not a plain turn.

    All three means, squares and products: a false alarm once in some 16,000 times.
    """
    target = correlated()
    guide = GaussianTarget(target.mean + 0.3, 0.5 * target.covariance.diagonal().diag())
    run = hmc(target, guide, **{**RUN, "draws": 1000})
    assert run.draws.shape == (64, 1000, 3)
    assert 0.75 < run.accepted < 0.85
    assert r_hat(run.draws.numpy()).max() < 1.01
    assert_moments(run.draws, target.mean, target.covariance.diagonal().sqrt())
    centred = (run.draws - target.mean).numpy()
    products = centred[..., [0, 0, 1]] * centred[..., [1, 2, 2]]
    expected = target.covariance[[0, 0, 1], [1, 2, 2]].numpy()
    errors = np.abs(products.mean(axis=(0, 1)) - expected)
    sizes = effective_sample_size(products, "mean")
    assert (errors < SIGMAS * products.std(axis=(0, 1)) / np.sqrt(sizes)).all(), errors


@pytest.mark.parametrize("acceptance", [0.4, 0.9])
def test_a_skewed_posterior_gives_the_moments_of_a_sum_over_a_grid(acceptance):
    """Whatever share is accepted: long steps and short ones have the same stationary distribution.

    Two means and two squares: a false alarm once in some 37,000 times.
    """
    target = small_regression()
    mean, sd = moments_on_a_grid(target)
    near = laplace(target)
    assert ((near.mean - mean) / sd).abs().max() > 0.2  # the Gaussian itself would fail
    run = hmc(target, near, **{**RUN, "draws": 1000}, acceptance=acceptance)
    assert_moments(run.draws, mean, sd)


def test_laplace_finds_mode_and_curvature():
    target = correlated()
    found = laplace(target)
    torch.testing.assert_close(found.mean, target.mean)
    torch.testing.assert_close(found.covariance, target.covariance)
    skewed = small_regression()
    near = laplace(skewed)
    assert skewed.gradient(near.mean).abs().max() < 1e-8
    step = torch.tensor([1e-4, 0], dtype=torch.float64)
    change = skewed.gradient(near.mean + step) - skewed.gradient(near.mean - step)
    torch.testing.assert_close(change / 2e-4, near.precision[0], rtol=1e-5, atol=1e-7)


class Quartic(Target):
    """U = x^2 / 2 + x^4 / 10: far from its mode much steeper than there."""

    dimension = 1

    def potential(self, points):
        return (points**2 / 2 + points**4 / 10).sum(-1)


def test_no_chain_is_left_behind_where_the_target_is_steep():
    """Where the farthest of them start, steps that suit the mode would always be rejected."""
    run = hmc(Quartic(), laplace(Quartic()), **{**RUN, "chains": 1000, "draws": 50})
    moved = (run.draws[:, 1:] != run.draws[:, :-1]).any(-1)
    assert moved.any(1).all()


def test_it_can_be_repeated_and_chains_differ():
    target = correlated()
    first, again = (hmc(target, target, **RUN) for _ in range(2))
    assert torch.equal(first.draws, again.draws)
    assert not torch.equal(first.draws, hmc(target, target, **{**RUN, "seed": 1}).draws)
    assert not torch.equal(first.draws[0], first.draws[1])
    # Paths of a quarter of a turn on average: draws are nearly independent.
    assert effective_sample_size(first.draws.numpy()).min() > 0.5 * math.prod(first.draws.shape[:2])


def test_bad_arguments_raise():
    target = correlated()
    for name in ("chains", "warm_up", "draws"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1"):
            hmc(target, target, **{**RUN, name: 0})
    with pytest.raises(ValueError, match="acceptance must be above 0 and below 1"):
        hmc(target, target, **RUN, acceptance=1.0)
    with pytest.raises(ValueError, match="near is a poor approximation"):
        hmc(target, GaussianTarget(target.mean, 1e9 * target.covariance), **RUN)
    with pytest.raises(ValueError, match="no mode found in 1 steps"):
        laplace(small_regression(), steps=1)
