import math

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov

from csgmcmc.diagnostics.temperature import effective_noise


def stationary_variance(pull: float, momentum: float, noise_variance: float) -> float:
    """Of theta in v <- momentum * v - pull * theta + noise, theta <- theta + v."""
    step = np.array([[1 - pull, momentum], [-pull, momentum]])  # of (theta, v)
    return solve_discrete_lyapunov(step, noise_variance * np.ones((2, 2)))[0, 0]


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.9])
def test_factor_is_that_of_the_stationary_variance(momentum):
    lr, curvature, num_data, variance = 0.2, 1.5, 100, 0.3
    injected = 2 * (1 - momentum) * lr / num_data
    noise = effective_noise(injected, variance, lr)
    without = stationary_variance(lr * curvature, momentum, injected)
    both = stationary_variance(lr * curvature, momentum, injected + lr**2 * variance)
    assert noise.temperature_factor == pytest.approx(both / without)


def test_variances_are_averaged_over_weights():
    noise = effective_noise([1.0, 3.0], [10.0, 20.0, 60.0], lr=0.1)
    assert noise.injected == pytest.approx(2.0)
    assert noise.minibatch == pytest.approx(0.3)
    assert noise.ratio == pytest.approx(20 / 3)
    assert noise.temperature_factor == pytest.approx(1.15)


def test_only_one_of_the_noises():
    quiet = effective_noise(1.0, 0.0, lr=0.1)
    assert (quiet.ratio, quiet.temperature_factor) == (math.inf, 1.0)
    optimiser = effective_noise(0.0, 1.0, lr=0.1)
    assert (optimiser.ratio, optimiser.temperature_factor) == (0.0, math.inf)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"gradient_variance must hold variances, .* got -1\.0"):
        effective_noise(1.0, -1.0, lr=0.1)
    with pytest.raises(ValueError, match=r"injected_variance must hold variances, .* got \[\]"):
        effective_noise([], 1.0, lr=0.1)
    with pytest.raises(ValueError, match=r"lr must be at least 0, got -1"):
        effective_noise(1.0, 1.0, lr=-1)
