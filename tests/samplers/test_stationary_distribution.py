"""Every discovered sampler has the stationary distribution that it declares."""

from typing import Any

import pytest
import torch
from scipy import stats

from csgmcmc import SGHMC, SGLD, SGNHT, Sampler
from tests.samplers.registry import REGISTRY, every_sampler
from tests.support import (
    HESSIAN,
    SIGMAS,
    assert_moments,
    eigen_covariance,
    make,
    run_on_quadratic,
    take_cold_step,
)

# Chains that do not begin at temperature 0, for which AdamSGHMC warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*a preconditioner from a single gradient")

# Far enough for the slowest direction to forget its start, with large steps.
STEPS, CHAINS = 600, 20_000


def tolerance_of(sampler: type[Sampler]) -> float:
    return REGISTRY[sampler.__name__].tolerance


def declared_settings(sampler: type[Sampler]) -> dict[str, Any]:
    """Large steps where the discrete distribution is known; more and smaller ones elsewhere."""
    options = REGISTRY[sampler.__name__].options
    if sampler.exact_stationary_variance:
        return {"lr": 0.3, "num_data": 4.0, "steps": STEPS, "chains": CHAINS, **options}
    return {"lr": 0.02, "num_data": 4.0, "steps": 3000, "chains": 5000}


def declared_variance(sampler: type[Sampler], curvature: float, run: dict[str, Any]) -> float:
    options = {name: value for name, value in run.items() if name not in ("steps", "chains")}
    return sampler.stationary_variance(curvature, **options)


@every_sampler
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_stationary_mean_and_covariance_are_the_declared_ones(sampler, temperature):
    run = {**declared_settings(sampler), "temperature": temperature}
    points = run_on_quadratic(sampler, **run)
    covariance = eigen_covariance(lambda c: declared_variance(sampler, c, run))
    assert_moments(points, covariance, tolerance_of(sampler))


@every_sampler
def test_twice_the_data_is_half_the_variance(sampler):
    """At fixed lr, prior and mean loss: N enters as the contract says."""
    run = declared_settings(sampler)
    once = run_on_quadratic(sampler, **run)
    twice = run_on_quadratic(sampler, **{**run, "num_data": 2 * run["num_data"]})
    ratio = twice.var(0) / once.var(0)
    standard_error = 0.5 * (4 / run["chains"]) ** 0.5
    assert (ratio - 0.5).abs().max() < SIGMAS * standard_error + 0.5 * tolerance_of(sampler)


@every_sampler
def test_weight_decay_is_a_gaussian_prior_of_precision_n_times_it(sampler):
    run = declared_settings(sampler)
    points = torch.randn(run["chains"], 1, generator=torch.Generator().manual_seed(2)).double()
    points /= run["num_data"] ** 0.5
    steps = run["steps"]
    options = {name: value for name, value in run.items() if name not in ("steps", "chains")}
    chain = make(sampler, [points], weight_decay=1.0, **options)
    take_cold_step(chain)
    for _ in range(steps):
        points.grad = torch.zeros_like(points)
        chain.step()
    expected = declared_variance(sampler, 1.0, run)
    allowed = SIGMAS * (2 / run["chains"]) ** 0.5 + tolerance_of(sampler)
    assert abs(float(points.var()) / expected - 1) < allowed


@every_sampler
def test_injected_noise_has_the_declared_variance(sampler):
    """One step with no gradient moves the parameters by the noise alone."""
    for options in ({}, {"lr": 0.01}, {"temperature": 3.0}, {"num_data": 1000.0}):
        param = torch.zeros(200_000, dtype=torch.float64)
        param.grad = torch.zeros_like(param)
        chain = make(sampler, [param], **options)
        chain.step()
        declared = torch.as_tensor(chain.injected_variance(chain.param_groups[0], param)).max()
        assert stats.kstest(param.numpy() / float(declared) ** 0.5, "norm").pvalue > 1e-5


@pytest.mark.parametrize(
    ("momentum", "gamma", "lr"), [(0.9, 0.0, 0.1), (0.5, 0.2, 0.3), (0.0, 0.5, 0.05)]
)
def test_the_known_noise_of_sghmc(momentum, gamma, lr):
    """The docstring's formula, written out again."""
    gradient_variance = 2 * gamma / (lr * 10)
    options = {"lr": lr, "momentum": momentum, "gradient_variance": gradient_variance}
    chain = make(SGHMC, [torch.zeros(1)], **options)
    variance = chain.injected_variance(chain.param_groups[0], torch.zeros(1))
    assert variance == pytest.approx(2 * (1 - momentum - gamma) * lr / 10)


def test_the_known_noise_of_sgnht():
    param = torch.zeros(400_000, dtype=torch.float64)
    param.grad = torch.zeros_like(param)
    make(SGNHT, [param], momentum=0.7).step()
    expected = 2 * 0.3 * 0.1 / 10
    assert float(param.var()) == pytest.approx(expected, rel=SIGMAS * (2 / len(param)) ** 0.5)


def test_thermostat_with_strong_friction_has_the_right_variance():
    """Where the discrete factor 1 - xi / 2 is worth 25%."""
    settings = {"lr": 0.02, "num_data": 4.0, "momentum": 0.5}
    points = run_on_quadratic(SGNHT, steps=3000, chains=10_000, **settings)
    posterior = torch.linalg.inv(HESSIAN) / settings["num_data"]
    assert_moments(points, posterior, tolerance_of(SGNHT))


@pytest.mark.parametrize("sampler", [SGLD, SGHMC])
def test_infinite_variance_past_the_limit_of_stability(sampler):
    assert sampler.stationary_variance(1.0, lr=5.0, num_data=10.0) == float("inf")


@pytest.mark.parametrize("sampler", [SGLD, SGHMC, SGNHT])
@pytest.mark.parametrize("pull", [1e-5, 1e-9, 1e-17])
def test_the_variance_of_small_steps_is_the_posteriors(sampler, pull):
    found = sampler.stationary_variance(1e-3, lr=1e3 * pull, num_data=10.0)
    assert found == pytest.approx(100, rel=pull)


@pytest.mark.parametrize("sampler", [SGLD, SGHMC, SGNHT])
def test_a_variance_beyond_all_numbers_is_infinite(sampler):
    assert sampler.stationary_variance(1e-320, lr=0.1, num_data=1.0) == float("inf")


@pytest.mark.parametrize(("lr", "temperature"), [(0.1, 1.0), (0.02, 0.25)])
def test_the_known_noise_of_sgld(lr, temperature):
    chain = make(SGLD, [torch.zeros(1)], lr=lr, temperature=temperature)
    variance = chain.injected_variance(chain.param_groups[0], torch.zeros(1))
    assert variance == pytest.approx(2 * lr * temperature / 10)


def test_gradient_variance_corrects_minibatch_noise():
    """With gamma = lr * N * V / (2 * T) the variance is as if the gradients were exact."""
    minibatch_variance = 0.5
    settings = {"lr": 0.1, "num_data": 4.0, "temperature": 0.8, "momentum": 0.7}

    def run(gradient_variance):
        return run_on_quadratic(
            SGHMC,
            steps=STEPS,
            chains=CHAINS,
            minibatch_variance=minibatch_variance,
            gradient_variance=gradient_variance,
            **settings,
        )

    def exact(**variances):
        return eigen_covariance(lambda c: SGHMC.stationary_variance(c, **settings, **variances))

    both = {"gradient_variance": minibatch_variance, "minibatch_variance": minibatch_variance}
    torch.testing.assert_close(exact(**both), exact())
    assert_moments(run(minibatch_variance), exact())
    too_hot = exact(minibatch_variance=minibatch_variance)
    assert_moments(run(0.0), too_hot)
    assert (too_hot.diagonal() > 1.3 * exact().diagonal()).all()


@pytest.mark.parametrize(("lr_share", "temperature"), [(1.0, 1.0), (0.3, 1.0), (0.5, 0.6)])
def test_the_correction_follows_the_schedule(lr_share, temperature):
    """What is taken off is the minibatch noise lr^2 * V, at any lr and temperature."""
    lr, num_data, gradient_variance, momentum = 0.1, 10.0, 0.4, 0.5
    options = {"momentum": momentum, "gradient_variance": gradient_variance}
    chain = make(SGHMC, [torch.zeros(1)], **options)
    group = chain.param_groups[0]
    group["lr"], group["temperature"] = lr * lr_share, temperature
    whole = 2 * (1 - momentum) * group["lr"] * temperature / num_data
    expected = whole - group["lr"] ** 2 * gradient_variance
    assert chain.injected_variance(group, torch.zeros(1)) == pytest.approx(expected)
    assert group["gradient_variance"] == gradient_variance
    group["temperature"] = 0.01  # minibatch noise is more than all of the noise: none is injected
    assert chain.injected_variance(group, torch.zeros(1)) == 0


def test_sgld_with_minibatch_noise_has_its_declared_variance():
    settings = {"lr": 0.2, "num_data": 4.0}
    points = run_on_quadratic(SGLD, steps=300, chains=CHAINS, minibatch_variance=1.0, **settings)
    covariance = eigen_covariance(
        lambda c: SGLD.stationary_variance(c, minibatch_variance=1.0, **settings)
    )
    assert_moments(points, covariance)


def test_thermostat_adapts_to_minibatch_noise():
    """SGNHT is not told the minibatch noise, and samples the posterior nevertheless."""
    settings = {"lr": 0.02, "num_data": 4.0}
    points = run_on_quadratic(SGNHT, steps=1500, chains=CHAINS, minibatch_variance=2.0, **settings)
    exact = eigen_covariance(lambda c: SGNHT.stationary_variance(c, **settings))
    assert_moments(points, exact, tolerance=2 * tolerance_of(SGNHT))
    uncorrected = eigen_covariance(
        lambda c: SGHMC.stationary_variance(c, minibatch_variance=2.0, **settings)
    )
    assert (uncorrected.diagonal() > 1.5 * exact.diagonal()).all()


def test_logistic_regression_matches_quadrature():
    """A posterior that is not Gaussian, by the contract: mean loss, num_data, weight_decay."""
    generator = torch.Generator().manual_seed(7)
    features = torch.randn(30, 1, generator=generator, dtype=torch.float64)
    labels = (torch.rand(30, generator=generator) < (2 * features[:, 0]).sigmoid()).double()
    prior_variance, num_data = 4.0, len(features)
    grid = torch.linspace(-4, 10, 4001, dtype=torch.float64)
    logits = grid[:, None] * features.T
    losses = torch.nn.functional.softplus(logits) - labels * logits
    density = (-losses.sum(-1) - grid.square() / (2 * prior_variance)).softmax(0)
    mean = (density * grid).sum()
    variance = (density * (grid - mean) ** 2).sum()

    chains = CHAINS
    points = mean + variance.sqrt() * torch.randn(chains, 1, generator=generator).double()
    weight_decay = 1 / (prior_variance * num_data)
    chain = SGLD([points], lr=0.1, num_data=num_data, weight_decay=weight_decay, seed=8)
    for _ in range(400):
        points.grad = ((points @ features.T).sigmoid() - labels) @ features / num_data
        chain.step()
    # The bias of the step, a share lr * curvature / 2 of the variance, is under 1%.
    assert abs(points.mean() - mean) < SIGMAS * (variance / chains).sqrt()
    assert abs(points.var() / variance - 1) < SIGMAS * (3 / chains) ** 0.5
