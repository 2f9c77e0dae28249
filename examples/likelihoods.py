"""Numbers whose noise varies, several labels for each row, batches that are dictionaries.

pip install .
python examples/likelihoods.py [FOLDER]      # about 10 seconds
"""

import sys

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, gaussian_nll_loss
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/likelihoods"
schedule = csgmcmc.Cyclical(steps=480, cycles=4, exploration=0.6, draws_per_cycle=5)


def sample(model, loss, loader, name, num_data):
    lr, options = csgmcmc.suggest_lr(model, loss, loader).lr, {"weight_decay": 3e-3, "seed": 0}
    sampler = csgmcmc.SGHMC(model.parameters(), lr, num_data=num_data, **options)
    store = csgmcmc.DrawStore(f"{folder}/{name}")
    return csgmcmc.Chain(model, loss, loader, sampler, schedule, store).run(resume=True)


class MeanAndVariance(nn.Sequential):  # "gaussian" takes a tuple of both
    def forward(self, x):
        mean, raw = super().forward(x).chunk(2, dim=-1)
        return mean, nn.functional.softplus(raw) + 1e-3


torch.manual_seed(0)
x = torch.rand(400, 1) * 4 - 2
y = x.sin() + (0.05 + 0.2 * (x > 0)) * torch.randn(400, 1)  # more noise on the right
train = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
model = MeanAndVariance(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 2))
parts = (model, lambda out, y: gaussian_nll_loss(out[0], y, out[1]), train)
draws = sample(*parts, "heteroscedastic", num_data=400)
posterior = csgmcmc.Posterior(model, draws, likelihood="gaussian")
std = posterior.predict(torch.tensor([[-1.0], [1.0]])).variance.sqrt().flatten()
print(f"heteroscedastic: std {std[0]:.2f} at -1 (noise 0.05), {std[1]:.2f} at 1 (noise 0.25)")

features = torch.randn(600, 10)
labels = (features[:, :4] + 0.5 * torch.randn(600, 4) > 0).float()  # four labels in each row
rows = [{"features": one, "labels": all_of} for one, all_of in zip(features, labels, strict=True)]
train, test = DataLoader(rows[:400], 50, shuffle=True), DataLoader(rows[400:], 100)
model = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 4))


def loss(model, batch):  # any batch that is not a pair is given to the loss with the model
    return binary_cross_entropy_with_logits(model(batch["features"]), batch["labels"])


draws = sample(model, loss, train, "multi-label", num_data=400 * 4)  # rows and labels
split = {"split": lambda batch: (batch["features"], batch["labels"])}
posterior = csgmcmc.Posterior(model, draws, likelihood="bernoulli", **split)
print("multi-label, batches that are dictionaries:", posterior.check(test), sep="\n")
