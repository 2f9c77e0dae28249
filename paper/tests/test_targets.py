import math

import pytest
import torch
from torch.distributions import (
    Categorical,
    Independent,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
)

from paper.targets import Density, GaussianTarget, LogisticRegression, Mixture, Mixture25, Target
from tests.support import SIGMAS


def logistic():
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    return LogisticRegression(features, (features[:, 0] > 0).double(), prior_variance=2.0)


def gaussian():
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    return GaussianTarget(torch.tensor([1.0, -1.0], dtype=torch.float64), covariance)


def unequal():
    means = torch.tensor([[-1.0, 0.0], [2.0, 1.0]], dtype=torch.float64)
    return Mixture(means, variance=0.5, weights=torch.tensor([1.0, 3.0], dtype=torch.float64))


TARGETS = [gaussian(), unequal(), Mixture25(torch.float64), logistic()]
every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: type(t).__name__)


@every_target
def test_gradient_is_that_of_the_potential_for_any_batch_of_chains(target):
    generator = torch.Generator().manual_seed(2)
    for shape in [(), (5,), (2, 3)]:
        points = 3 * torch.randn(*shape, target.dimension, generator=generator, dtype=torch.float64)
        assert target.potential(points).shape == shape
        torch.testing.assert_close(target.gradient(points), Target.gradient(target, points))
        potential, gradient = target.potential_and_gradient(points)
        assert torch.equal(potential, target.potential(points))
        assert torch.equal(gradient, target.gradient(points))


@pytest.mark.parametrize("target", [gaussian(), unequal(), Mixture25(torch.float64)])
def test_draws_have_the_exact_moments(target):
    count = 50_000
    draws = target.sample(count, torch.Generator().manual_seed(3))
    standard_error = (target.covariance.diagonal() / count).sqrt()
    assert ((draws.mean(0) - target.mean).abs() < SIGMAS * standard_error).all()
    centred = draws - target.mean
    products = centred[:, :, None] * centred[:, None, :]
    standard_error = products.std(0) / count**0.5
    assert ((products.mean(0) - target.covariance).abs() < SIGMAS * standard_error).all()


def test_gaussian_potential_is_the_log_density():
    target = gaussian()
    points = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    exact = MultivariateNormal(target.mean, target.covariance)
    difference = target.potential(points) + exact.log_prob(points)
    torch.testing.assert_close(difference, difference[0].expand(6))


def test_mixture_potential_is_the_log_density():
    target = unequal()
    points = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    modes = Independent(Normal(target.means, 0.5**0.5), 1)
    exact = MixtureSameFamily(Categorical(target.weights), modes)
    difference = target.potential(points) + exact.log_prob(points)
    torch.testing.assert_close(difference, difference[0].expand(6))


def test_mixture25_is_the_papers():
    target = Mixture25()
    assert target.means.shape == (25, 2)
    assert set(target.means.flatten().tolist()) == {-4, -2, 0, 2, 4}
    assert len(target.means.unique(dim=0)) == 25
    assert target.variance == 0.03
    # Far from every mode the gradient stays exact in float32: that of the nearest mode alone.
    torch.testing.assert_close(
        target.gradient(torch.tensor([10.0, 10.0])), torch.full((2,), 6 / 0.03)
    )


def test_logistic_regression_follows_the_contract():
    target = logistic()
    points = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    whole = target.num_data * (
        target.mean_loss(points) + target.weight_decay / 2 * points.square().sum(-1)
    )
    torch.testing.assert_close(target.potential(points), whole)
    by_hand = [
        -math.log(1 / (1 + math.exp(-float(x @ points[0]))))
        if y
        else -math.log(1 - 1 / (1 + math.exp(-float(x @ points[0]))))
        for x, y in zip(target.features, target.labels, strict=True)
    ]
    assert float(target.mean_loss(points)[0]) == pytest.approx(sum(by_hand) / len(by_hand))
    halves = [torch.arange(10), torch.arange(10, 20)]
    for function in (target.mean_loss, target.mean_loss_gradient):
        mean = sum(function(points, rows) for rows in halves) / 2
        torch.testing.assert_close(mean, function(points))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GaussianTarget(torch.zeros(2), torch.eye(3)), r"\(2,\) and \(3, 3\)"),
        (lambda: GaussianTarget(torch.zeros(2), -torch.eye(2)), "positive definite"),
        (
            lambda: GaussianTarget(torch.zeros(2), torch.tensor([[1.0, 0.5], [0.0, 1.0]])),
            "symmetric",
        ),
        (lambda: Mixture(torch.zeros(2, 1), 1.0, torch.tensor([1.0, -1.0])), "weights"),
        (lambda: LogisticRegression(torch.zeros(3, 2), torch.zeros(2)), r"\(3, 2\) and \(2,\)"),
        (lambda: LogisticRegression(torch.zeros(2, 2), torch.tensor([0.0, 2.0])), "0 or 1"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@every_target
def test_density_gives_the_targets_own_gradient(target):
    points = torch.randn(
        4, target.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(6)
    )
    model = Density(target, points)
    loss = model()
    torch.testing.assert_close(loss.detach(), target.potential(points).sum())
    (2 * loss).backward()
    torch.testing.assert_close(model.points.grad, 2 * target.gradient(points))
