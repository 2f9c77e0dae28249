from typing import Any

import numpy as np
import pytest
from scipy import stats

from csgmcmc.diagnostics import temperature as module
from csgmcmc.diagnostics.temperature import Temperature, temperature_of_products

# Statistical tests fail by chance once in 150,000 times: 4.5 standard errors.
SIGMAS = 4.5
CONTRACT: dict[str, Any] = {"lr": 0.3, "num_data": 50.0, "temperature": 1.5}
CURVATURE = 2.0
PULL = CONTRACT["lr"] * CURVATURE
MOMENTA = [0.0, 0.1, 0.9]


def discrete_temperature(momentum: float) -> float:
    """The exact temperature of both kinds on the quadratic."""
    whole = 2 * (1 + momentum)
    return CONTRACT["temperature"] * whole / (whole - PULL)


def run(
    *,
    momentum,
    gradient=lambda theta: CURVATURE * theta,
    lr=CONTRACT["lr"],
    temperature=CONTRACT["temperature"],
    noise=0.0,
    chains=20_000,
    steps=200,
    seed=7,
):
    """Weights, velocities and last stochastic gradients of independent chains of one weight.

    They start near the posterior, and forget where within some 1 / (1 - sqrt(momentum)) steps.
    The gradient's noise is +-noise, which is as far from Gaussian as noise can be.
    """
    rng = np.random.default_rng(seed)
    num_data = CONTRACT["num_data"]
    theta = rng.normal(size=chains) * (temperature / (num_data * CURVATURE)) ** 0.5
    v = rng.normal(size=chains) * (2 * lr * temperature / ((1 + momentum) * num_data)) ** 0.5
    injected = (2 * (1 - momentum) * lr * temperature / num_data) ** 0.5
    stochastic = np.zeros(chains)
    for _ in range(steps):
        stochastic = gradient(theta) + noise * rng.choice([-1.0, 1.0], size=chains)
        v = momentum * v - lr * stochastic + injected * rng.normal(size=chains)
        theta = theta + v
    return theta, v, stochastic


def far_from_linear(theta: np.ndarray) -> np.ndarray:
    """Gradient of a loss that is no quadratic, and not so steep that chains can run away."""
    return 2 * np.tanh(5 * theta) + 0.3 * theta


def configurational_temperature(weights, gradients, **options) -> Temperature:
    """That of draws (draws, d), with their own gradients in the target unless others are given."""
    theta, g = np.asarray(weights), np.asarray(gradients)
    options = {"squared_gradient": float((g**2).mean()), **options}
    return temperature_of_products((theta * g).mean(axis=1), **options)


def kinetic_temperature(velocities, **options) -> Temperature:
    """That of independent velocities, which the same target holds for."""
    v = np.asarray(velocities)
    target = temperature_of_products([0.0, 0.0], **{"squared_gradient": 0.0, **options}).target
    rate = (1 + options["momentum"]) * options["num_data"] / (2 * options["lr"])
    value = rate * float((v**2).mean())
    quantiles = stats.chi2.ppf([(1 + module.LEVEL) / 2, (1 - module.LEVEL) / 2], v.size)
    low, high = (v.size * value / quantiles).tolist()
    return Temperature(value, low, high, target)


def verdict_of(found: Temperature) -> str:
    if found.high < found.target:
        return "too cold"
    return "too hot" if found.low > found.target else "as it should be"


def column(values: np.ndarray) -> np.ndarray:
    """Independent chains of one weight, as draws of one weight."""
    return values[:, None]


@pytest.mark.parametrize("momentum", MOMENTA)
def test_discrete_sghmc_on_a_quadratic_has_both_temperatures_of_the_target(momentum):
    theta, v, _ = run(momentum=momentum)
    exact = discrete_temperature(momentum)
    squared_gradient = CURVATURE * exact / CONTRACT["num_data"]
    options = {**CONTRACT, "momentum": momentum, "squared_gradient": squared_gradient}
    kinetic = kinetic_temperature(v, **options)
    configurational = configurational_temperature(
        column(theta), column(CURVATURE * theta), **options
    )
    for measured in (kinetic, configurational):
        assert measured.target == pytest.approx(exact)
        assert abs(measured.value - exact) < SIGMAS * exact * (2 / len(v)) ** 0.5
        assert verdict_of(measured) == "as it should be"


@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize(("factor", "verdict"), [(0.5, "too cold"), (2.0, "too hot")])
def test_chains_at_another_temperature_are_detected(momentum, factor, verdict):
    theta, v, _ = run(momentum=momentum, temperature=factor * CONTRACT["temperature"], chains=2000)
    gradients = CURVATURE * theta
    options = {**CONTRACT, "momentum": momentum}
    kinetic = kinetic_temperature(v, **options, squared_gradient=float((gradients**2).mean()))
    assert verdict_of(kinetic) == verdict
    measured = configurational_temperature(column(theta), column(gradients), **options)
    assert verdict_of(measured) == verdict


def test_configurational_target_is_made_from_the_gradients():
    g = np.array([[1.0, 2.0], [3.0, 4.0]])  # mean square 7.5
    measured = configurational_temperature(g / 2, g, **CONTRACT, momentum=0.5)
    assert measured.target == pytest.approx(1.5 + 0.3 * 50 * 7.5 / 3)
    assert measured.value == pytest.approx(50 * 7.5 / 2)


def test_without_the_factor_of_momentum_the_velocities_have_another_temperature():
    momentum, lr = 0.1, 1e-5  # eta = 0.9
    _, v, _ = run(momentum=momentum, lr=lr)
    options = {**CONTRACT, "lr": lr, "momentum": momentum}
    raw = CONTRACT["num_data"] / lr * (v**2).mean()
    eta, wanted = 1 - momentum, CONTRACT["temperature"]
    relative_error = (2 / len(v)) ** 0.5
    assert abs(raw / (wanted * 2 / (2 - eta)) - 1) < SIGMAS * relative_error
    assert verdict_of(kinetic_temperature(v, **options)) == "as it should be"


@pytest.mark.parametrize("momentum", MOMENTA)
def test_both_temperatures_agree_on_any_loss_with_any_gradient_noise(momentum):
    theta, v, _ = run(momentum=momentum, gradient=far_from_linear, noise=0.5, lr=0.1, steps=500)
    gradients = far_from_linear(theta)
    options = {**CONTRACT, "lr": 0.1, "momentum": momentum}
    kinetic = kinetic_temperature(v, **options).value
    virial = configurational_temperature(column(theta), column(gradients), **options).value
    rate = (1 + momentum) * CONTRACT["num_data"] / (2 * 0.1)
    differences = rate * v**2 - CONTRACT["num_data"] * theta * gradients
    assert abs(kinetic - virial) < SIGMAS * differences.std() / len(v) ** 0.5
    assert kinetic > 1.2 * CONTRACT["temperature"]  # the noise heats


def test_target_of_sgld_is_exact_with_the_gradients_of_the_chain():
    _, v, stochastic = run(momentum=0.0, gradient=far_from_linear, noise=0.5, lr=0.1)
    squares = stochastic**2
    options = {**CONTRACT, "lr": 0.1, "momentum": 0.0}
    measured = kinetic_temperature(v, **options, squared_gradient=float(squares.mean()))
    rate = CONTRACT["num_data"] / 0.2
    differences = rate * (v**2 - 0.1**2 * squares)
    assert abs(measured.value - measured.target) < SIGMAS * differences.std() / len(v) ** 0.5
    assert measured.target > 1.2 * CONTRACT["temperature"]


def test_intervals_hold_the_target_as_often_as_they_say(monkeypatch):
    rng, repeats, level, momentum = np.random.default_rng(8), 1000, 0.9, 0.5
    exact = discrete_temperature(momentum)
    n = CONTRACT["num_data"]
    spread_v = (exact * 2 * CONTRACT["lr"] / ((1 + momentum) * n)) ** 0.5
    spread_theta = (exact / (n * CURVATURE)) ** 0.5
    options = {**CONTRACT, "momentum": momentum, "squared_gradient": CURVATURE * exact / n}
    monkeypatch.setattr("csgmcmc.diagnostics.temperature.LEVEL", level)
    hits = np.zeros(2)
    for _ in range(repeats):
        v, theta = spread_v * rng.normal(size=(4, 5)), spread_theta * rng.normal(size=(10, 20))
        kinetic = kinetic_temperature(v, **options)
        configurational = configurational_temperature(theta, CURVATURE * theta, **options)
        hits += [each.low <= exact <= each.high for each in (kinetic, configurational)]
    error = (repeats * level * (1 - level)) ** 0.5
    np.testing.assert_array_less(np.abs(hits - repeats * level), SIGMAS * error)


def test_origin_of_the_weights_does_not_matter():
    theta, _, _ = run(momentum=0.9)
    gradients = column(CURVATURE * theta)
    options = {**CONTRACT, "momentum": 0.9}
    here = configurational_temperature(column(theta), gradients, **options)
    there = configurational_temperature(column(theta) + 3.0, gradients, **options)
    error = CONTRACT["num_data"] * 3.0 * gradients.std() / len(theta) ** 0.5
    assert 0 < abs(there.value - here.value) < SIGMAS * error
    assert verdict_of(there) == "as it should be"
    assert there.high - there.low > here.high - here.low


def test_verdict_and_bounds(monkeypatch):
    monkeypatch.setattr("csgmcmc.diagnostics.temperature.LEVEL", 0.5)
    assert verdict_of(Temperature(1.0, 0.9, 1.1, 1.2)) == "too cold"
    assert verdict_of(Temperature(1.0, 0.9, 1.1, 1.1)) == "as it should be"
    assert verdict_of(Temperature(1.0, 0.9, 1.1, 0.8)) == "too hot"
    # two degrees of freedom: the chi-square quantile is -2 * log(1 - p)
    unit = {"lr": 0.5, "num_data": 1.0, "momentum": 0.0, "temperature": 1.0}
    measured = kinetic_temperature([1.0, 1.0], **unit)
    assert (measured.value, measured.target) == (1.0, 1.0)
    assert measured.low == pytest.approx(1 / np.log(4))
    assert measured.high == pytest.approx(1 / np.log(4 / 3))
    # one degree of freedom: the t distribution is Cauchy's, with quartiles at -1 and 1
    measured = configurational_temperature([[1.0], [1.0]], [[1.0], [3.0]], **unit)
    assert (measured.low, measured.value, measured.high) == pytest.approx((1.0, 2.0, 3.0))


def test_arguments_are_checked():
    options = {**CONTRACT, "momentum": 0.9}
    with pytest.raises(ValueError, match="products must"):
        configurational_temperature(np.ones((1, 2)), np.ones((1, 2)), **options)
    with pytest.raises(ValueError, match=r"momentum must be at least 0 and below 1, got 1"):
        kinetic_temperature([1.0], **{**options, "momentum": 1})
    with pytest.raises(ValueError, match=r"lr must be above 0, got 0"):
        configurational_temperature(np.ones((2, 1)), np.ones((2, 1)), **{**options, "lr": 0})
