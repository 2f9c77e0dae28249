"""`csgmcmc run`, `inspect` and `report` with a function of your own: no loop, no main program.

    pip install '.[plot]'
    csgmcmc run examples/own_script.py:make_chain --chains 2
    csgmcmc inspect runs/own_script
    csgmcmc report runs/own_script                 # and open runs/own_script/report.html
    python examples/own_script.py                  # predictions on held-out data

The run can be stopped at any time; the same command resumes it. About 15 seconds in all.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
images = images.float() / 16
train = TensorDataset(images[:800], labels[:800])
held_out = DataLoader(TensorDataset(images[800:1400], labels[800:1400]), batch_size=300)


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))


def make_chain(draws: csgmcmc.DrawStore, chain_id: int, seed: int) -> csgmcmc.Chain:
    """The chain with this number: `csgmcmc run` calls this once for each."""
    model = make_model()  # the global generators are seeded: each chain has weights of its own
    order = torch.Generator().manual_seed(seed)
    loader = DataLoader(train, batch_size=50, shuffle=True, generator=order)
    options = {"momentum": 0.9, "weight_decay": 1e-3, "temperature": 0.1, "num_data": len(train)}
    sampler = csgmcmc.SGHMC(model.parameters(), lr=0.1, seed=0, chain_id=chain_id, **options)
    schedule = csgmcmc.Cyclical(steps=640, cycles=4, exploration=0.5, draws_per_cycle=5)
    return csgmcmc.Chain(model, nn.functional.cross_entropy, loader, sampler, schedule, draws)


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else "runs/own_script"
    posterior = csgmcmc.Posterior(make_model(), csgmcmc.DrawStore(folder))
    posterior.check(held_out, show=True)
