"""The reference of `truth`: long Hamiltonian Monte Carlo with exact gradients.

From p ~ N(0, I), leapfrog steps

    p <- p - h / 2 * grad U(x);  x <- x + h * p;  p <- p - h / 2 * grad U(x)

lead to a point that is accepted with probability min(1, exp(H_before - H_after)), where
H = U + |p|^2 / 2, so that the target is the stationary distribution at any step size h (Neal, "MCMC
using Hamiltonian dynamics", 2011). All chains move at once, and each has a step size of its own.

Points are in units of the prior's standard deviation, where a path of length pi / 2 forgets its
start along every direction that the data say nothing about. Gradients may be in single precision,
which costs acceptance only: positions, momenta and energies are in double precision.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from paper.experiments.truth_networks import Weights, flat, losses_and_gradients, unflat

LENGTHS = (0.35 * math.pi, 0.65 * math.pi)  # so that no direction returns to its start every time
FIRST_STEP, MOST_STEPS = 0.01, 400
ACCEPTANCE = 0.8  # to which the burn-in adapts the step sizes

Energy = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From points (chains, dimension) to U and its gradient."""


class Chains(NamedTuple):
    """Draws (chains, draws, dimension), and of each chain the acceptance rate and step size."""

    draws: Tensor
    accepted: Tensor
    steps: Tensor
    gradients: int
    """Evaluated by each chain, burn-in included."""


def energy_of_network(
    like: Weights, inputs: Tensor, labels: Tensor, weight_decay: float
) -> tuple[Energy, float]:
    """U of a perceptron in units of the prior's sd, and that sd, 1 / sqrt(N * weight_decay)."""
    sd = (len(inputs) * weight_decay) ** -0.5
    chains = len(like[0])
    rows, targets = inputs[None], labels.expand(chains, -1)

    def energy(points: Tensor) -> tuple[Tensor, Tensor]:
        losses, gradients = losses_and_gradients(unflat(points * sd, like), rows, targets)
        potential = len(inputs) * losses + points.square().sum(-1) / 2
        return potential, len(inputs) * sd * flat(gradients).double() + points

    return energy, sd


@torch.no_grad()
def hmc(
    energy: Energy,
    starts: Tensor,
    *,
    burn_in: int,
    draws: int,
    seed: int,
    paths_per_draw: int = 1,
    acceptance: float = ACCEPTANCE,
) -> Chains:
    """Run a chain from each row of `starts`, which are in double precision.

    The first half of the burn-in adapts fast and with short paths, which bring bad starts to where
    the density is; none of it is kept.
    """
    generator = torch.Generator().manual_seed(seed)
    chains = len(starts)
    points, log_steps = starts, starts.new_full((chains, 1), math.log(FIRST_STEP))
    potential, gradient = energy(points)
    kept, accepted, evaluated = [], starts.new_zeros(chains), 1
    for path in range(burn_in + draws * paths_per_draw):
        low, high = LENGTHS
        length = low + (high - low) * float(torch.rand((), generator=generator))
        if path < burn_in // 2:
            length /= 4
        # All chains take as many steps, each as long as suits it: paths differ in length a little.
        typical = math.exp(float(log_steps.mean()))
        count = min(max(math.ceil(length / typical), 1), MOST_STEPS)
        step = log_steps.exp() * (length / (count * typical) if count < MOST_STEPS else 1.0)
        momentum = torch.randn(points.shape, generator=generator, dtype=points.dtype).to(points)
        before = potential + momentum.square().sum(-1) / 2
        new_points, new_potential, new_gradient = points, potential, gradient
        momentum = momentum - step / 2 * new_gradient
        for index in range(count):
            new_points = new_points + step * momentum
            new_potential, new_gradient = energy(new_points)
            momentum = momentum - (step if index < count - 1 else step / 2) * new_gradient
        evaluated += count
        change = before - new_potential - momentum.square().sum(-1) / 2
        chance = change.clamp(max=0).exp().nan_to_num(0.0)
        drawn = torch.rand(chains, generator=generator, dtype=chance.dtype)
        accept = drawn.to(chance) < chance
        points = torch.where(accept[:, None], new_points, points)
        gradient = torch.where(accept[:, None], new_gradient, gradient)
        potential = torch.where(accept, new_potential, potential)
        if path < burn_in:
            since = path if path < burn_in // 2 else path - burn_in // 2
            log_steps = log_steps + (chance[:, None] - acceptance) / math.sqrt(since + 1)
        else:
            accepted += chance / (draws * paths_per_draw)
            if (path - burn_in + 1) % paths_per_draw == 0:
                kept.append(points)
    return Chains(torch.stack(kept, dim=1), accepted, log_steps.exp()[:, 0], evaluated)
