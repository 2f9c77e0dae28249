"""SWAG: its moments, the covariance of its draws, and batch normalisation."""

import numpy as np
import pytest
import torch
from torch import nn

from paper.networks import mlp, resnet8
from paper.rivals import SWAG
from tests.support import SIGMAS


def point(values):
    """A model whose only weights are these."""
    model = nn.Linear(len(values), 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([values]))
    return model


def rows_of(draws, name="weight"):
    return torch.stack([draw.tensors()[name].flatten() for draw in draws]).double().numpy()


def test_moments_are_those_of_the_collected_weights():
    walk = np.random.default_rng(0).normal(size=(30, 3)).astype("float32")
    swag = SWAG(point([0.0] * 3), rank=5)
    for values in walk:
        swag.collect(point(values.tolist()))
    assert swag.count == 30
    assert swag.mean.numpy() == pytest.approx(walk.mean(0), abs=1e-6)
    assert swag.variance.numpy() == pytest.approx(walk.var(0), rel=1e-4)
    means = np.cumsum(walk, axis=0) / np.arange(1, 31)[:, None]
    assert np.stack(list(swag.deviations)) == pytest.approx((walk - means)[-5:], abs=1e-5)


def test_draws_have_the_mean_and_covariance_of_the_paper():
    # Each of 3 means and 6 covariances is off by SIGMAS only once in very many seeds.
    walk = np.random.default_rng(1).normal(size=(40, 3)) @ [[1, 0.5, 0], [0, 1, 0], [0, 0.8, 0.2]]
    swag = SWAG(point([0.0] * 3), rank=4)
    for values in walk:
        swag.collect({"weight": torch.tensor(values)[None]})
    count = 4000
    drawn = rows_of(swag.draws(count, seed=0))
    low_rank = np.stack(list(swag.deviations))
    wanted = np.diag(swag.variance.numpy()) / 2 + low_rank.T @ low_rank / (2 * 3)
    scale = np.sqrt(np.diag(wanted))
    assert np.all(np.abs(drawn.mean(0) - swag.mean.numpy()) < SIGMAS * scale / count**0.5)
    error = np.sqrt((wanted**2 + np.outer(scale, scale) ** 2) / count)
    assert np.all(np.abs(np.cov(drawn.T) - wanted) < SIGMAS * error)


def test_on_a_quadratic_its_variance_is_that_of_sgd():
    """SGD on c x^2 / 2 with gradient noise s is AR(1): variance lr s^2 / (c (2 - lr c))."""
    lr, curvature, noise, steps = 0.5, np.array([0.5, 1.0, 2.0]), 0.3, 20_000
    shocks = np.random.default_rng(2).normal(size=(steps, 3)) * noise
    swag, x = SWAG(point([0.0] * 3)), np.zeros(3)
    for shock in shocks:
        x = x - lr * (curvature * x + shock)
        swag.collect({"weight": torch.tensor(x)[None]})
    wanted = lr * noise**2 / (curvature * (2 - lr * curvature))
    kept = 1 - lr * curvature
    # The variance of a mean of squares of an AR(1) process, and so its standard error.
    error = wanted * np.sqrt(2 * (1 + kept**2) / (1 - kept**2) / steps)
    assert np.all(np.abs(swag.variance.numpy() - wanted) < SIGMAS * error)


def test_a_model_that_did_not_move_is_drawn_where_it_is():
    model = mlp(3, 4, 2)
    swag = SWAG(model)
    with pytest.raises(ValueError, match="at least 2"):
        swag.draws(1, seed=0)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(3):
        swag.collect()
    for draw in swag.draws(2, seed=0):
        for name, tensor in draw.tensors().items():
            torch.testing.assert_close(tensor, start[name])


def test_statistics_of_batch_normalisation_are_those_of_the_drawn_weights():
    torch.manual_seed(0)
    model, images = resnet8(width=8), torch.randn(12, 3, 8, 8)
    swag = SWAG(model)
    for _ in range(3):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape), alpha=0.05)
        swag.collect()
    draws = swag.draws(2, seed=0, loader=[(images[:6], None), (images[6:], None)])
    means = []
    for draw in draws:
        draw.load_into(model)
        convolution, normalisation = model.stem[0], model.stem[1]
        assert isinstance(normalisation, nn.BatchNorm2d)
        means.append(normalisation.running_mean)
        wanted = convolution(images).mean((0, 2, 3))
        torch.testing.assert_close(normalisation.running_mean, wanted, rtol=1e-3, atol=1e-5)
    assert not torch.equal(draws[0].tensors()["stem.1.running_mean"], means[1])
