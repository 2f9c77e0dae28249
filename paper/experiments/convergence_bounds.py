"""The paper's bounds on W2(mu_K, nu_inf), as it prints them, with the constants of a Gaussian."""

import math
from dataclasses import dataclass

import numpy as np

from paper.experiments.gaussian_moments import Array

DALALYAN = 1.65  # the constant of Dalalyan and Karagulyan 2019, proposition 2


@dataclass(frozen=True)
class Curvature:
    """What the appendix assumes of U: m and M, the least and the greatest, and d."""

    convexity: float
    smoothness: float
    dimension: int


def theorem_two(steps: int, alpha0: float, start: float, noise: float = 0.0) -> float:
    """Theorem 2 for N(0, 1), all chains starting at `start`; `noise` is its sigma.

    The 6 under the root is the theorem's; its proof has 12, which makes the bound larger. The other
    constants are those that the proof names. With U = theta^2 / 2: L_U = m_U = 1, B = 0 and b
    may be as small as one likes, kappa_0 = start^2; along the diffusion W2 to the target falls as
    exp(-t), so that C_3 is the distance at the start, and C_4 = 1.
    """
    kappa = start**2
    c0 = kappa + 2
    c1 = 6 * (c0 + 1)
    c2 = kappa + 2
    time = steps * alpha0 / 2
    gap = c1 * 3 * alpha0**2 * steps / 8 + noise * c0 * time
    left = math.hypot(start, 1.0) * math.exp(-time)
    return left + math.sqrt(6 + c2 * time) * (gap**0.5 + (gap / 2) ** 0.25)


def strongly_convex(
    steps: Array, step_sizes: Array, first_distance: float, curvature: Curvature, noise: float
) -> Array:
    """The appendix's bound after `steps` steps of a run that has these `step_sizes`.

    Two terms of the paper's bound have delta, the bound on the *bias* of the gradient. Minibatches
    have none, so that delta = 0 and the bound as stated is that of `noise` = 0. Dalalyan and
    Karagulyan's theorem, from which it is taken, has the standard deviation of the gradient in the
    last term: that is `noise`.
    """
    least, most = step_sizes.min(), step_sizes.max()
    stable = curvature.convexity * least + curvature.smoothness * most <= 2
    lost = curvature.convexity * least if stable else 2 - curvature.smoothness * most
    drift, spread = _added(most, curvature, noise)
    last = spread**2 / (drift + math.sqrt(lost) * spread)
    return (1 - lost) ** steps * first_distance + drift / lost + last


def strongly_convex_stepwise(
    step_sizes: Array, first_distance: float, curvature: Curvature, noise: float
) -> Array:
    """The inequality that the appendix starts from, applied step after step with each step's size.

    W_k^2 <= (rho_k W_{k-1} + 1.65 M alpha_k^(3/2) sqrt(d))^2 + noise^2 alpha_k^2 d,
    rho_k = max(1 - m alpha_k, M alpha_k - 1)
    """
    bounds = []
    bound = first_distance
    for size in step_sizes.tolist():
        rho = max(1 - curvature.convexity * size, curvature.smoothness * size - 1)
        drift, spread = _added(size, curvature, noise)
        bound = math.hypot(rho * bound + drift, spread)
        bounds.append(bound)
    return np.array(bounds)


def _added(size: float, curvature: Curvature, noise: float) -> tuple[float, float]:
    """What a step adds to the distance: by its length, and by the noise of its gradient."""
    root = math.sqrt(curvature.dimension)
    return DALALYAN * curvature.smoothness * size**1.5 * root, noise * size * root
