"""A training loop of your own, with batch normalisation and two parameter groups.

Weights have a Gaussian prior; biases and norms have a wider one, in a group of their own. The same
loop at temperature 0 with one cycle is plain training, which is shown beside it.

    pip install .
    python examples/hand_loop.py [FOLDER]        # about 5 seconds
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc.diagnostics import calibration_error, negative_log_likelihood

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/hand_loop"
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
images = images.float() / 16
train = TensorDataset(images[:300], labels[:300])
test_loader = DataLoader(TensorDataset(images[1000:], labels[1000:]), batch_size=400)


def sample(name: str, temperature: float, cycles: int, draws_per_cycle: int) -> csgmcmc.Posterior:
    torch.manual_seed(0)  # the same start and the same batches for both runs
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    matrices = [param for param in model.parameters() if param.ndim > 1]
    vectors = [param for param in model.parameters() if param.ndim == 1]  # biases and norms
    groups = [{"params": matrices, "weight_decay": 3e-4}, {"params": vectors, "weight_decay": 1e-5}]
    options = {"lr": 0.1, "momentum": 0.9, "num_data": len(train), "seed": 0}
    sampler = csgmcmc.SGHMC(groups, temperature=temperature, **options)
    schedule = csgmcmc.Cyclical(1200, cycles, exploration=0.8, draws_per_cycle=draws_per_cycle)
    store = csgmcmc.DrawStore(f"{folder}/{name}")
    stepper = csgmcmc.Stepper(model, sampler, schedule, store)
    loader = DataLoader(train, batch_size=50, shuffle=True)
    for x, y in stepper.batches(loader):
        sampler.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        stepper.step(loss)
    return csgmcmc.Posterior(model, store)  # each draw has batch-norm statistics of its own


trained = sample("trained", temperature=0.0, cycles=1, draws_per_cycle=1)
sampled = sample("sampled", temperature=1.0, cycles=4, draws_per_cycle=5)
for name, posterior in {"one trained network": trained, "20 draws": sampled}.items():
    p = posterior.predict_loader(test_loader)
    probs, targets = p.probs_numpy(), p.labels_numpy()
    nll, error = negative_log_likelihood(probs, targets), (probs.argmax(1) != targets).mean()
    ece = calibration_error(probs, targets)
    print(f"{name:20} NLL {nll:.3f}, error {error:.1%}, calibration error {ece:.3f}")
