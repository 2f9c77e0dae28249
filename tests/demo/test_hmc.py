"""Hamiltonian Monte Carlo against distributions whose moments are known."""

import torch

from csgmcmc.diagnostics import r_hat
from examples.demo.hmc import hmc
from paper.diagnostics import mcse
from paper.targets import GaussianTarget, Target

COVARIANCE = torch.tensor([[1.0, 0.6, 0.0], [0.6, 0.5, 0.1], [0.0, 0.1, 2.0]], dtype=torch.float64)


def run(target, draws=1000, chains=8):
    starts = 3 * torch.randn(chains, target.dimension, dtype=torch.float64)
    return hmc(target, starts, leapfrogs=10, warm_up=200, draws=draws, seed=0)


def test_moments_of_a_gaussian():
    torch.manual_seed(0)
    mean = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    draws, accepted = run(GaussianTarget(mean, COVARIANCE))
    assert 0.7 < accepted < 0.9
    assert r_hat(draws.numpy()).max() < 1.01
    errors = draws.mean((0, 1)).numpy() - mean.numpy()
    assert (abs(errors) < 4 * mcse(draws.numpy())).all()
    centred = (draws - mean).flatten(0, 1)
    products = (centred[:, :, None] * centred[:, None]).unflatten(0, (8, -1)).flatten(2).numpy()
    errors = products.mean((0, 1)) - COVARIANCE.flatten().numpy()
    assert (abs(errors) < 4 * mcse(products)).all()


class LinearModel(Target):
    """The posterior of y = weights x + N(0, 0.5^2), with the prior N(0, 1)."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets, self.dimension = inputs, targets, inputs.shape[1]

    def potential(self, points):
        residuals = points @ self.inputs.T - self.targets
        return points.square().sum(-1) / 2 + residuals.square().sum(-1) / (2 * 0.5**2)


def test_posterior_of_a_linear_model():
    torch.manual_seed(0)
    inputs = torch.randn(20, 2, dtype=torch.float64)
    targets = inputs @ torch.tensor([1.0, -1.0], dtype=torch.float64) + 0.5 * torch.randn(20)
    draws = run(LinearModel(inputs, targets), draws=500).draws
    precision = torch.eye(2, dtype=torch.float64) + inputs.T @ inputs / 0.5**2
    exact = torch.linalg.solve(precision, inputs.T @ targets / 0.5**2)
    assert (abs(draws.mean((0, 1)) - exact).numpy() < 4 * mcse(draws.numpy())).all()
    spread = draws.flatten(0, 1).T.cov()
    assert torch.allclose(spread, torch.linalg.inv(precision), rtol=0.15, atol=5e-4)
