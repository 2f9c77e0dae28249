"""Whether a chain samples at the temperature it was given.

For the discrete update v' = m * v - lr * grad + sqrt(2 * (1 - m) * lr * T / N) * eps,
theta' = theta + v', with grad an unbiased gradient of U / N (SGLD is m = 0), every stationary
distribution has E[theta . grad U] = (1 + m) * N / (2 * lr) * E|v|^2. On a quadratic U without
minibatch noise both sides are, for each weight,

    T + lr * N * E[g^2] / (2 * (1 + m)),    g the full gradient of U / N,

which tends to T as lr -> 0. That is the target here. The usual N / lr * E[v^2] tends to
2 * T / (1 + m) instead. For SGLD the target is exact for any U if g is the gradient that the chain
itself used, noise included. Minibatch noise makes a chain hotter than the target.
"""

from typing import NamedTuple

from numpy.typing import ArrayLike
from scipy import stats

from csgmcmc.arguments import check_number
from csgmcmc.diagnostics.arrays import check_numbers

LEVEL = 0.99  # of the confidence intervals


class Temperature(NamedTuple):
    """A measured temperature, its confidence interval, and its target."""

    value: float
    low: float
    high: float
    target: float


def temperature_of_products(
    products: ArrayLike,
    *,
    squared_gradient: float,
    lr: float,
    num_data: float,
    momentum: float,
    temperature: float,
) -> Temperature:
    """Configurational temperature: N * mean of theta . g / d, g the gradient of U / N at each draw.

    `products` has one number for each draw, the mean over its d weights of theta * g. The origin of
    theta may be any fixed point; the interval is narrowest near the mean of the draws. The interval
    is Student's t over the draws, as if these were independent. The momentum is 0 for SGLD.

    The gradients are of the full data, or of a minibatch drawn independently of the chain.
    Minibatch gradients leave the value unbiased, but add their variance to the mean of g^2:
    `squared_gradient` is that of the full gradient, over weights and draws.
    """
    p = check_numbers("products", products, "draws")
    if len(p) < 2:
        raise ValueError(f"products must be of at least 2 draws, got {p.shape}")
    check_number("lr", lr, above=0)
    check_number("num_data", num_data, above=0)
    check_number("momentum", momentum, at_least=0, below=1)
    check_number("temperature", temperature, at_least=0)
    check_number("squared_gradient", squared_gradient, at_least=0)
    target = temperature + lr * num_data * squared_gradient / (2 * (1 + momentum))
    value, error = num_data * float(p.mean()), num_data * float(stats.sem(p))
    low, high = value + error * stats.t.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], len(p) - 1)
    return Temperature(value, float(low), float(high), target)
