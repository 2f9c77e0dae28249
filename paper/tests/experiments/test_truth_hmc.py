"""HMC of stacked chains, held to answers that are known without it."""

import math

import numpy as np
import torch

from csgmcmc.diagnostics import effective_sample_size, r_hat
from paper.experiments.truth_hmc import energy_of_network, hmc
from paper.experiments.truth_networks import flat, logits_of, stacked_weights, unflat
from paper.networks import mlp
from tests.support import SIGMAS


def within(values, exact, sd):
    """Whether means of draws (chains, draws, d) are off by less than chance and mixing allow.

    A false alarm of one number has probability 1 in 150,000.
    """
    found = values.reshape(-1, values.shape[-1]).mean(0)
    sizes = effective_sample_size(values, kind="mean")
    return np.all(np.abs(found - exact) < SIGMAS * sd / np.sqrt(sizes))


def test_a_gaussian_has_its_mean_and_variances():
    mean, sd = np.array([1.0, -2.0, 0.5, 0.0]), np.array([1.0, 0.5, 0.1, 0.02])
    centre, precision = torch.tensor(mean), torch.tensor(sd**-2)

    def energy(points):
        slope = (points - centre) * precision
        return ((points - centre) * slope).sum(-1) / 2, slope

    starts = torch.zeros(16, 4, dtype=torch.float64)
    run = hmc(energy, starts, burn_in=60, draws=600, seed=0)
    draws = run.draws.numpy()
    assert draws.shape == (16, 600, 4)
    assert 0.6 < float(run.accepted.mean()) < 0.95
    assert within(draws, mean, sd)
    assert within((draws - mean) ** 2, sd**2, math.sqrt(2) * sd**2)
    assert r_hat(draws).max() < 1.03


def test_a_wrong_gradient_costs_acceptance_and_no_truth():
    def energy(points):
        return points.square().sum(-1) / 2, 1.3 * points

    run = hmc(energy, torch.zeros(16, 3).double(), burn_in=60, draws=300, seed=1)
    draws = run.draws.numpy()
    assert float(run.accepted.mean()) < 0.95
    assert within(draws**2, 1.0, math.sqrt(2))


def test_a_linear_model_has_the_posterior_of_a_grid():
    """Two classes, one input, no hidden layer: the predictive by summing over differences.

    The logits' differences w x + b have the prior N(0, 2 / (N * weight_decay)) each.
    """
    inputs = torch.tensor([[-1.5], [-0.5], [0.2], [0.4], [1.0], [2.0]])
    labels, weight_decay = torch.tensor([0, 1, 0, 1, 1, 1]), 0.1
    asked = torch.tensor([[-3.0], [0.0], [0.7], [4.0]])

    line = torch.linspace(-16, 16, 801, dtype=torch.float64)
    w, b = torch.meshgrid(line, line, indexing="ij")
    signs = 2.0 * labels - 1
    log_density = -(w**2 + b**2) * len(inputs) * weight_decay / 4
    for x, sign in zip(inputs[:, 0].tolist(), signs.tolist(), strict=True):
        log_density = log_density + torch.nn.functional.logsigmoid(sign * (w * x + b))
    density = torch.softmax(log_density.flatten(), 0).reshape(w.shape)
    exact = torch.stack([(density * torch.sigmoid(w * x + b)).sum() for x in asked[:, 0].tolist()])

    torch.manual_seed(0)
    like = stacked_weights([mlp(1, 2) for _ in range(16)])
    energy, sd = energy_of_network(like, inputs, labels, weight_decay)
    run = hmc(energy, flat(like).double() / sd, burn_in=60, draws=400, seed=2)
    found = torch.stack(
        [
            logits_of(unflat(run.draws[:, draw] * sd, like), asked[None]).softmax(-1)[..., 1]
            for draw in range(400)
        ],
        dim=1,
    )
    values = found.double().numpy()
    assert within(values, exact.numpy(), values.std((0, 1)))


def test_the_energy_is_minus_the_log_posterior():
    torch.manual_seed(0)
    models = [mlp(3, 4, 2) for _ in range(2)]
    like = stacked_weights(models)
    inputs, labels = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])
    energy, sd = energy_of_network(like, inputs, labels, 0.02)
    assert sd == (5 * 0.02) ** -0.5
    points = flat(like).double() / sd
    potential, gradient = energy(points)
    for chain, model in enumerate(models):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels, reduction="sum")
        prior = sum(parameter.square().sum() for parameter in model.parameters()) * 5 * 0.02 / 2
        np.testing.assert_allclose(float(potential[chain]), (loss + prior).item(), rtol=1e-5)
    step = 1e-3 * torch.randn_like(points)
    change = energy(points + step)[0] - energy(points - step)[0]
    torch.testing.assert_close(change, 2 * (gradient * step).sum(-1), rtol=1e-2, atol=1e-4)
