"""A script of your own: chains that can be stopped, a report, and predictions.

    pip install '.[plot]'
    for id in 0 1; do python examples/own_script.py --chain-id $id; done
    csgmcmc inspect runs/own_script
    csgmcmc report runs/own_script                 # and open runs/own_script/report.html
    python examples/own_script.py --check          # predictions on held-out data

Each run can be stopped at any time; the same command resumes it. About 15 seconds in all.
"""

import argparse

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


def make_chain(draws: csgmcmc.DrawStore, chain_id: int = 0, device: str = "cpu") -> csgmcmc.Chain:
    torch.manual_seed(chain_id)  # each chain has initial weights and batches of its own
    model = make_model().to(device)
    loader = DataLoader(train, batch_size=50, shuffle=True)
    options = {"momentum": 0.9, "weight_decay": 1e-3, "temperature": 0.1, "num_data": len(train)}
    sampler = csgmcmc.SGHMC(model.parameters(), lr=0.1, seed=0, chain_id=chain_id, **options)
    schedule = csgmcmc.Cyclical(steps=640, cycles=4, exploration=0.5, draws_per_cycle=5)
    parts = (model, nn.functional.cross_entropy, loader, sampler, schedule, draws)
    return csgmcmc.Chain(*parts, device=device)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", default="runs/own_script")
    parser.add_argument("--chain-id", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--check", action="store_true", help="predict with the draws of all chains")
    options = parser.parse_args()
    store = csgmcmc.DrawStore(options.folder)
    if options.check:
        csgmcmc.Posterior(make_model(), store).check(held_out, show=True)
    else:
        make_chain(store, options.chain_id, options.device).run(resume=options.resume)
