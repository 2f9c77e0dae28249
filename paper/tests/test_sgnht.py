"""SGNHT, the thermostat that adapts to minibatch noise."""

import pytest
import torch

from csgmcmc import SGHMC, Cyclical, Keep
from paper.sgnht import SGNHT
from tests.support import (
    HESSIAN,
    SIGMAS,
    assert_moments,
    eigen_covariance,
    make,
    run_on_quadratic,
    small_model,
    train,
)

TOLERANCE = 0.03  # the thermostat follows the weights: exact only as lr goes to 0


def test_at_temperature_0_it_is_sgd_with_momentum():
    ours, theirs = small_model(torch.float64), small_model(torch.float64)
    train(ours, make(SGNHT, ours.parameters(), temperature=0, momentum=0.7), steps=30)
    reference = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.7)
    train(theirs, reference, steps=30)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_the_known_noise():
    param = torch.zeros(400_000, dtype=torch.float64)
    param.grad = torch.zeros_like(param)
    make(SGNHT, [param], momentum=0.7).step()
    expected = 2 * 0.3 * 0.1 / 10
    assert float(param.var()) == pytest.approx(expected, rel=SIGMAS * (2 / len(param)) ** 0.5)


def test_thermostat_with_strong_friction_has_the_right_variance():
    """Where the discrete factor 1 - xi / 2 is worth 25%."""
    settings = {"lr": 0.02, "num_data": 4.0, "momentum": 0.5}
    points = run_on_quadratic(SGNHT, steps=3000, chains=10_000, **settings)
    assert_moments(points, torch.linalg.inv(HESSIAN) / settings["num_data"], TOLERANCE)


def test_thermostat_adapts_to_minibatch_noise():
    """SGNHT is not told the minibatch noise, and samples the posterior nevertheless."""
    settings = {"lr": 0.02, "num_data": 4.0}
    points = run_on_quadratic(SGNHT, steps=1500, chains=20_000, minibatch_variance=2.0, **settings)
    exact = eigen_covariance(lambda c: SGNHT.stationary_variance(c, **settings))
    assert_moments(points, exact, tolerance=2 * TOLERANCE)
    uncorrected = eigen_covariance(
        lambda c: SGHMC.stationary_variance(c, minibatch_variance=2.0, **settings)
    )
    assert (uncorrected.diagonal() > 1.5 * exact.diagonal()).all()


def test_thermostat_survives_cold_exploration():
    """A friction below 0 must not drive its weight away while the chain is cold."""
    point = torch.zeros(5000, dtype=torch.float64)
    chain = make(SGNHT, [point], momentum=0.99, coupling=0.01)
    schedule = Cyclical(2000, cycles=4, exploration=0.8, keep=Keep(every=1))
    for step in range(schedule.steps):
        tick = schedule.apply(chain, step)
        point.grad = point.clone()
        chain.step()
        if tick.stage == "explore" and step > 500:
            assert point.abs().max() < 100
    assert (chain.state[point]["friction"] < 0).any()


def test_thermostat_without_coupling_is_sghmc_and_freezes_when_cold():
    one, other = small_model(torch.float64), small_model(torch.float64)
    train(one, make(SGNHT, one.parameters(), coupling=0.0), steps=20)
    train(other, make(SGHMC, other.parameters()), steps=20)
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-10, atol=1e-12)

    chain = make(SGNHT, one.parameters())
    train(one, chain, steps=5)
    warm = [chain.state[param]["friction"].clone() for param in one.parameters()]
    assert all((friction != 0.1).all() for friction in warm)
    chain.param_groups[0]["temperature"] = 0.0
    train(one, chain, steps=5)
    for param, friction in zip(one.parameters(), warm, strict=True):
        assert torch.equal(chain.state[param]["friction"], friction)
