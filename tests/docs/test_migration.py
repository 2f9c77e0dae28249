"""The tables of docs/migration.md: the same steps as elsewhere, with the numbers that they give.

The updates below are those of the other code, written out from its equations.
"""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from csgmcmc import SGHMC, SGLD

NUM_DATA = 1000
MODE = torch.tensor([1.0, -2.0], dtype=torch.float64)


def mean_gradient(point: Tensor) -> Tensor:
    """Of the mean loss: |x - MODE|^2 / 2."""
    return point - MODE


def take_steps(
    sampler: SGLD | SGHMC, steps: int, gradient: Callable[[Tensor], Tensor] = mean_gradient
) -> Tensor:
    (point,) = sampler.param_groups[0]["params"]
    for _ in range(steps):
        point.grad = gradient(point)
        sampler.step()
    return point


def start() -> Tensor:
    return torch.zeros(2, dtype=torch.float64)


def injected_variance(sampler: SGLD | SGHMC) -> float:
    group = sampler.param_groups[0]
    return float(sampler.injected_variance(group, group["params"][0]))


def test_the_published_code():
    lr, alpha, weight_decay, temperature = 0.5, 0.9, 5e-4, 1 / NUM_DATA
    options = {"lr": lr, "weight_decay": weight_decay, "num_data": NUM_DATA}
    point, buffer = start(), start()
    for _ in range(20):
        buffer = (1 - alpha) * buffer - lr * (mean_gradient(point) + weight_decay * point)
        point = point + buffer
    cold = SGHMC([start()], momentum=1 - alpha, temperature=0.0, **options)
    torch.testing.assert_close(take_steps(cold, 20), point)

    hot = SGHMC([start()], momentum=1 - alpha, temperature=temperature, **options)
    assert injected_variance(hot) == pytest.approx(2 * lr * alpha * temperature / NUM_DATA)
    sgld = SGLD([start()], temperature=temperature, **options)
    of_the_loss = math.sqrt(2 / lr) * math.sqrt(temperature / NUM_DATA)
    assert injected_variance(sgld) == pytest.approx((lr * of_the_loss) ** 2)


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_posteriors(sigma):
    step, alpha, temperature, beta = 0.05, 2.0, 3 / NUM_DATA, 0.5
    precision = sigma**-2
    # Where the gradient is the same everywhere, its being late makes no difference, but for the
    # first step, which moves nothing: there is no momentum yet.
    point, momenta, slope = start(), start(), torch.tensor([1.0, -2.0], dtype=torch.float64)
    for _ in range(21):
        point, momenta = (
            point + step * precision * momenta,
            momenta - step * slope - step * precision * alpha * momenta,
        )
    lr, momentum = step**2 / sigma**2, 1 - step * alpha / sigma**2
    cold = SGHMC([start()], lr, momentum=momentum, num_data=NUM_DATA, temperature=0.0)
    torch.testing.assert_close(take_steps(cold, 20, lambda _: slope), point)

    hot = SGHMC(
        [start()],
        lr,
        momentum=momentum,
        num_data=NUM_DATA,
        temperature=NUM_DATA * temperature,
        gradient_variance=temperature**2 * beta,
    )
    of_momenta = temperature * step * (2 * alpha - temperature * step * beta)
    assert injected_variance(hot) == pytest.approx((step * precision) ** 2 * of_momenta)
    sgld = SGLD([start()], step, num_data=NUM_DATA, temperature=NUM_DATA * temperature)
    assert injected_variance(sgld) == pytest.approx(2 * step * temperature)


def test_fortuna():
    step_size, decay, log_var = 1e-4, 0.9, 0.5
    point, momenta = start(), start()
    for _ in range(20):
        gradient = -NUM_DATA * mean_gradient(point) - math.exp(-log_var) * point
        momenta = decay * momenta + math.sqrt(step_size) * gradient
        point = point + math.sqrt(step_size) * momenta
    options = {
        "lr": NUM_DATA * step_size,
        "momentum": decay,
        "weight_decay": math.exp(-log_var) / NUM_DATA,
        "num_data": NUM_DATA,
    }
    cold = SGHMC([start()], temperature=0.0, **options)
    torch.testing.assert_close(take_steps(cold, 20), point)
    hot = SGHMC([start()], **options)
    assert injected_variance(hot) == pytest.approx(step_size * 2 * (1 - decay))


def test_the_variance_of_posteriors():
    """That its gradient is late is seen in the law, exactly: the fixed point of its covariance."""
    step, alpha, curvature = 0.3, 1.0, 1.0
    eta, c = step * alpha, step**2 * curvature
    one_step = torch.tensor([[1.0, step], [-step * curvature, 1 - step * alpha]])
    covariance, noise = torch.eye(2), torch.diag(torch.tensor([0.0, 2 * step * alpha]))
    for _ in range(2000):
        covariance = one_step @ covariance @ one_step.T + noise
    said = eta / (eta - c) * 2 * (2 - eta + c) / (2 * (2 - eta) + c)
    assert float(covariance[0, 0]) == pytest.approx(said, rel=1e-4)
    assert said == pytest.approx(1.47, abs=0.005)
    ours = SGHMC.stationary_variance(
        curvature=curvature, lr=step**2, num_data=1, momentum=1 - eta, temperature=1.0
    )
    assert ours == pytest.approx(1.03, abs=0.005)
