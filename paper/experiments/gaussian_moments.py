"""Exact moments of SGLD on a Gaussian, for any step sizes: no Monte Carlo.

On U = theta^2 / (2 s^2), with a gradient that has independent noise of standard deviation sigma,

    theta_k = (1 - alpha_k / s^2) theta_{k-1} - alpha_k sigma xi_k + sqrt(2 alpha_k) eps_k

is Gaussian and so are all theta_k together. Their means and variances, and the sums of
covariances that the error of an average needs, each follow x_k = f_k x_{k-1} + g_k.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """One coordinate of the chain: mean and variance after each step.

    Attributes:
        scale: s, the target's standard deviation.
        factors: 1 - alpha_k / s^2, what is left of the coordinate after each step.
        mean: of theta_k.
        variance: of theta_k.
    """

    scale: float
    factors: Array
    mean: Array
    variance: Array


@dataclass(frozen=True)
class Average:
    """Mean and variance of a weighted average of theta_k^2 over one chain."""

    mean: float
    variance: float


def sgld_moments(
    step_sizes: Array, scale: float, mean: float, variance: float, noise: float = 0.0
) -> Moments:
    """Moments of a chain that starts from N(mean, variance); `noise` is sigma."""
    factors = 1 - step_sizes / scale**2
    added = 2 * step_sizes + (step_sizes * noise) ** 2
    return Moments(
        scale,
        factors,
        mean=recursion(factors, np.zeros_like(factors), mean),
        variance=recursion(factors**2, added, variance),
    )


def recursion(factors: Array, added: Array, start: float) -> Array:
    """x_k = factors_k * x_{k-1} + added_k, from x = start."""
    values = []
    value = start
    for factor, more in zip(factors.tolist(), added.tolist(), strict=True):
        value = factor * value + more
        values.append(value)
    return np.array(values)


def mean_of_squares(moments: Moments, weights: Array) -> float:
    """Expectation of the weighted average of theta_k^2."""
    return float(weights @ (moments.mean**2 + moments.variance) / weights.sum())


def average_of_squares(moments: Moments, weights: Array) -> Average:
    """Moments of the weighted average of theta_k^2, in time that grows as the number of steps.

    Cov(theta_i^2, theta_j^2) = 2 c_ij^2 + 4 m_i m_j c_ij, and for i < j the covariance c_ij is
    v_i times the factors after i up to j. So two running sums over i < j replace the double sum:
    of w_i c_ij^2 and of w_i m_i c_ij.
    """
    share = weights / weights.sum()
    mean, variance, factors = moments.mean, moments.variance, moments.factors
    squares = recursion(factors**2, factors**2 * _before(share * variance**2), 0.0)
    products = recursion(factors, factors * _before(share * mean * variance), 0.0)
    own = 2 * variance**2 + 4 * mean**2 * variance
    total = share @ (share * own + 4 * squares + 8 * mean * products)
    return Average(mean_of_squares(moments, weights), float(total))


def distance(coordinates: Sequence[Moments]) -> Array:
    """W2 to the target after each step; the coordinates of the chain are independent.

    Infinite or nan where the chain has gone past what float64 holds.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = [
            moments.mean**2 + (np.sqrt(moments.variance) - moments.scale) ** 2
            for moments in coordinates
        ]
        return np.sqrt(np.sum(squares, axis=0))


def _before(values: Array) -> Array:
    """Each value one step later, and 0 at the first."""
    return np.concatenate([[0.0], values[:-1]])
