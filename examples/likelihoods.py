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
recipe = csgmcmc.Recipe(epochs=60, exploration=0.6, draws_per_cycle=5, weight_decay=3e-3)


class MeanAndVariance(nn.Module):  # "gaussian" takes a tuple of both
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 2))

    def forward(self, x):
        mean, raw = self.net(x).chunk(2, dim=-1)
        return mean, nn.functional.softplus(raw) + 1e-3


torch.manual_seed(0)
x = torch.rand(600, 1) * 4 - 2
y = x.sin() + (0.05 + 0.2 * (x > 0)) * torch.randn(600, 1)  # more noise on the right
train = DataLoader(TensorDataset(x[:400], y[:400]), batch_size=50, shuffle=True)
model = MeanAndVariance()
store = csgmcmc.DrawStore(f"{folder}/heteroscedastic")
chain = recipe.make_chain(model, lambda out, y: gaussian_nll_loss(out[0], y, out[1]), train, store)
posterior = csgmcmc.Posterior(model, chain.run(resume=True), likelihood="gaussian")
std = posterior.predict(torch.tensor([[-1.0], [1.0]])).variance.sqrt().flatten()
print(f"heteroscedastic: std {std[0]:.2f} at -1 (noise 0.05), {std[1]:.2f} at 1 (noise 0.25)")
low, high = posterior.predict(x[400:], members=True).interval(0.9)
print(f"  {((low < y[400:]) & (y[400:] < high)).float().mean():.0%} lie in the 90% intervals")

features = torch.randn(600, 10)
labels = (features[:, :4] + 0.5 * torch.randn(600, 4) > 0).float()  # four labels in each row
rows = [{"features": one, "labels": all_of} for one, all_of in zip(features, labels, strict=True)]
train, test = DataLoader(rows[:400], 50, shuffle=True), DataLoader(rows[400:], 100)
model = nn.Sequential(nn.Linear(10, 30), nn.Tanh(), nn.Linear(30, 4))


def loss(model, batch):  # any batch that is not a pair is given to the loss with the model
    return binary_cross_entropy_with_logits(model(batch["features"]), batch["labels"])


store = csgmcmc.DrawStore(f"{folder}/multi-label")
chain = recipe.make_chain(model, loss, train, store, num_data=400 * 4)  # rows and labels
split = {"split": lambda batch: (batch["features"], batch["labels"])}
posterior = csgmcmc.Posterior(model, chain.run(resume=True), likelihood="bernoulli", **split)
print("multi-label, batches that are dictionaries:")
posterior.check(test, show=True)
