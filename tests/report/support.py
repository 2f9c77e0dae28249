"""A small run to make a page of."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, Chain, Cyclical, Posterior


def classes(size, seed=0):
    inputs = torch.randn(size, 3, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, (inputs[:, 0] + 0.5 * inputs[:, 1] > 0).long())


def run(draws, model=None, cycles=3):
    """A chain that has run, and its posterior."""
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    loader = DataLoader(classes(40), batch_size=10, shuffle=True)
    sampler = SGHMC(model.parameters(), lr=0.3, num_data=40, momentum=0.8, seed=1)
    schedule = Cyclical(30 * cycles, cycles=cycles, exploration=0.5, draws_per_cycle=3)
    loss = nn.functional.cross_entropy
    chain = Chain(model, loss, loader, sampler, schedule, draws, progress=False, watch=False)
    chain.run()
    return chain, Posterior(model, draws, progress=False)


def held_out():
    return DataLoader(classes(50, seed=1), batch_size=20)
