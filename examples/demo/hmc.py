"""Hamiltonian Monte Carlo with exact gradients: the reference of the regression.

From p ~ N(0, I), leapfrog steps

    p <- p - h / 2 * grad U(x);  x <- x + h * p;  p <- p - h / 2 * grad U(x)

lead to a point that is accepted with probability min(1, exp(H_before - H_after)), where
H = U + |p|^2 / 2. So the target is the stationary distribution at any step size h (Neal, "MCMC
using Hamiltonian dynamics", 2011). All chains move at once.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from paper.targets import Target

ACCEPTANCE = 0.8  # to which the warm-up adapts the step size


class HMCRun(NamedTuple):
    """Draws of shape (chains, draws, dimension), and the mean acceptance rate."""

    draws: Tensor
    accepted: float


def hmc(
    target: Target, starts: Tensor, *, leapfrogs: int, warm_up: int, draws: int, seed: int
) -> HMCRun:
    """Run a chain from each row of `starts`, one draw for each path of `leapfrogs` steps."""
    generator = torch.Generator().manual_seed(seed)
    points, log_step, accepted = starts, math.log(0.01), 0.0
    potential, gradient = target.potential_and_gradient(points)
    kept: list[Tensor] = []
    for path in range(warm_up + draws):
        # Lengths vary by half, so that no direction returns to its start on every path.
        step = math.exp(log_step) * (0.5 + float(torch.rand((), generator=generator)))
        momentum = torch.randn(points.shape, generator=generator, dtype=points.dtype)
        before = potential + momentum.square().sum(-1) / 2
        new_points, new_potential, new_gradient = points, potential, gradient
        for _ in range(leapfrogs):
            momentum = momentum - step / 2 * new_gradient
            new_points = new_points + step * momentum
            new_potential, new_gradient = target.potential_and_gradient(new_points)
            momentum = momentum - step / 2 * new_gradient
        change = before - new_potential - momentum.square().sum(-1) / 2
        chance = change.clamp(max=0).exp().nan_to_num(0.0)
        accept = torch.rand(len(points), generator=generator, dtype=points.dtype) < chance
        points = torch.where(accept[:, None], new_points, points)
        gradient = torch.where(accept[:, None], new_gradient, gradient)
        potential = torch.where(accept, new_potential, potential)
        if path < warm_up:
            log_step += (float(chance.mean()) - ACCEPTANCE) / math.sqrt(path + 1)
        else:
            accepted += float(chance.mean()) / draws
            kept.append(points)
    return HMCRun(torch.stack(kept, dim=1), accepted)
