"""Chains on a density with exact gradients; all of them are rows of one tensor."""

import torch
from torch import Tensor

from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Schedule
from paper.targets import Target


def run_chains(target: Target, points: Tensor, sampler: Sampler, schedule: Schedule) -> Tensor:
    """Move `points` along `schedule`; the draws, of shape (chains, draws, dimension)."""
    draws: list[Tensor] = []
    for step in range(schedule.steps):
        tick = schedule.apply(sampler, step)
        points.grad = target.gradient(points)
        sampler.step()
        if tick.collect:
            draws.append(points.clone())
    return torch.stack(draws, dim=1)
