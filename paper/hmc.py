"""Reference draws for targets without a closed form: Hamiltonian Monte Carlo, exact gradients.

In the coordinates z with theta = mean + L z, L L' the covariance of a Gaussian near the target, a
path of leapfrog steps

    p <- p - h / 2 * grad;  z <- z + h * p;  p <- p - h / 2 * grad

from p ~ N(0, I) is accepted with probability min(1, exp(H_before - H_after)), H = U + |p|^2 / 2
(Neal, "MCMC using Hamiltonian dynamics", 2011). Its stationary distribution is
the target at any step size h.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paper.arguments import check_count
from paper.targets import GaussianTarget, Target

# On that Gaussian, a path of length pi / 2 forgets its start. Other targets have faster and slower
# directions, so lengths vary: no direction returns to its start at every path.
LENGTHS = (0.25 * math.pi, 0.75 * math.pi)
# Far from its mode the target can be steeper, where long steps are always rejected. So the step
# size starts small, and grows as the chains approach the mode.
FIRST_STEP = 0.1
MOST_STEPS = 1000  # of a path; if more are needed, `near` is a poor approximation of the target


@dataclass(frozen=True)
class HMCRun:
    """Draws of shape (chains, draws, dimension), the acceptance rate, and the step size."""

    draws: Tensor
    accepted: float
    step: float


def laplace(target: Target, *, steps: int = 100) -> GaussianTarget:
    """The Gaussian with the target's mode as its mean and the curvature there as its precision.

    By Newton's method from 0, in double precision; for targets with one mode and positive
    curvature all around it.
    """
    point = torch.zeros(target.dimension, dtype=torch.float64)
    for _ in range(steps):
        curvature = torch.autograd.functional.hessian(target.potential, point)
        gradient = target.gradient(point)
        move = torch.linalg.solve(curvature, gradient)
        if float(move @ gradient) < 1e-20:
            return GaussianTarget(point, torch.linalg.inv(curvature))  # pyright: ignore[reportArgumentType]
        while target.potential(point - move) > target.potential(point):
            move = move / 2
        point = point - move
    raise ValueError(f"no mode found in {steps} steps of Newton's method")


@torch.no_grad()
def hmc(
    target: Target,
    near: GaussianTarget,
    *,
    chains: int,
    warm_up: int,
    draws: int,
    seed: int,
    acceptance: float = 0.8,
) -> HMCRun:
    """Run `chains` in parallel. The warm-up, which is discarded, also adapts the step size.

    Args:
        target: the density, in the dtype of `near`, which should be double.
        near: a Gaussian approximation of the target, as from `laplace`. Its covariance sets the
            scales, and the chains start from it, with twice its standard deviation.
        chains: number of chains.
        warm_up: paths of each chain before the first draw.
        draws: draws of each chain; each path gives one.
        seed: seed of all randomness.
        acceptance: target acceptance rate, for adapting the step size.
    """
    check_count("chains", chains, at_least=1)
    check_count("warm_up", warm_up, at_least=1)
    check_count("draws", draws, at_least=1)
    if not 0 < acceptance < 1:
        raise ValueError(f"acceptance must be above 0 and below 1, got {acceptance!r}")
    generator = torch.Generator().manual_seed(seed)
    factor = torch.linalg.cholesky(near.covariance)
    shape = (chains, target.dimension)

    def noise() -> Tensor:
        return torch.randn(shape, generator=generator, dtype=factor.dtype)

    def potential_and_gradient(z: Tensor) -> tuple[Tensor, Tensor]:
        potential, gradient = target.potential_and_gradient(near.mean + z @ factor.T)
        return potential, gradient @ factor

    z, log_step, accepted = 2 * noise(), math.log(FIRST_STEP), 0.0
    potential, gradient = potential_and_gradient(z)
    kept = torch.empty(draws, *shape, dtype=factor.dtype)
    for path in range(warm_up + draws):
        shortest, longest = LENGTHS
        length = shortest + (longest - shortest) * float(torch.rand((), generator=generator))
        count = math.ceil(length / math.exp(log_step))
        if count > MOST_STEPS:
            raise ValueError(
                f"even steps of {math.exp(log_step):.1g} are rejected: near is a poor "
                "approximation of the target"
            )
        step = length / count
        momentum = noise()
        energy = potential + momentum.square().sum(-1) / 2
        new_z, new_potential, new_gradient = z, potential, gradient
        for _ in range(count):
            momentum = momentum - step / 2 * new_gradient
            new_z = new_z + step * momentum
            new_potential, new_gradient = potential_and_gradient(new_z)
            momentum = momentum - step / 2 * new_gradient
        change = energy - new_potential - momentum.square().sum(-1) / 2
        chance = change.clamp(max=0).exp().nan_to_num(0.0)
        accept = torch.rand(chains, generator=generator, dtype=chance.dtype) < chance
        z = torch.where(accept[:, None], new_z, z)
        gradient = torch.where(accept[:, None], new_gradient, gradient)
        potential = torch.where(accept, new_potential, potential)
        if path < warm_up:
            log_step += (float(chance.mean()) - acceptance) / math.sqrt(path + 1)
        else:
            accepted += float(chance.mean()) / draws
            kept[path - warm_up] = near.mean + z @ factor.T
    return HMCRun(kept.transpose(0, 1), accepted, math.exp(log_step))
