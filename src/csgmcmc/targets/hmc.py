"""Answers for targets that have no closed form: Hamiltonian Monte Carlo with exact gradients.

In the coordinates z with theta = mean + L z, L L' the covariance of a Gaussian near the target, a
path of leapfrog steps

    p <- p - h / 2 * grad;  z <- z + h * p;  p <- p - h / 2 * grad

from p ~ N(0, I) is accepted with probability min(1, exp(H_before - H_after)), H = U + |p|^2 / 2
(Neal, "MCMC using Hamiltonian dynamics", 2011). The law is the target's own at any step size h.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from csgmcmc.arguments import check_count, check_number
from csgmcmc.targets.base import Target
from csgmcmc.targets.gaussian import GaussianTarget

# A quarter of a turn forgets where it started, if the target is that Gaussian. All targets have
# directions that turn faster or slower: lengths vary, so that none of them comes back every time.
LENGTHS = (0.25 * math.pi, 0.75 * math.pi)
# Where a chain starts, the target can be steeper than near its mode, and long steps are refused
# there for ever: the first ones are short, and grow while chains come in.
FIRST_STEP = 0.1
MOST_STEPS = 1000  # of a path; a target that needs more of them is not the one that `near` is near


@dataclass(frozen=True)
class HMCRun:
    """Draws of shape (chains, draws, dimension), the share accepted, and the step size."""

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
    """Run `chains` side by side; what is dropped as warm-up also sets the step size.

    Args:
        target: the density; `near` must have its precision, which should be double.
        near: a Gaussian like the target, as `laplace` gives: its covariance sets the scales, and
            the chains start from it, with twice its spread.
        chains: how many.
        warm_up: paths of each chain before the first draw.
        draws: paths of each chain after that, each of which is a draw.
        seed: of all randomness.
        acceptance: share of paths to be accepted, by the choice of the step size.
    """
    check_count("chains", chains, at_least=1)
    check_count("warm_up", warm_up, at_least=1)
    check_count("draws", draws, at_least=1)
    check_number("acceptance", acceptance, above=0, below=1)
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
            raise ValueError(f"steps of {math.exp(log_step):.1g} are refused: near is not near")
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
