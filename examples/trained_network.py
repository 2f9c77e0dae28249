"""From a trained network to a posterior, in a tenth of the epochs of its training.

A network is trained as usual. `posterior_from_trained` samples around its weights: all of them, or
the last layer alone, which is stored by itself.

    pip install .
    python examples/trained_network.py [FOLDER]      # about 5 seconds
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, nll_loss
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/trained_network"
torch.manual_seed(0)
images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
images = images.float() / 16
loader = DataLoader(TensorDataset(images[:500], labels[:500]), batch_size=50, shuffle=True)
test, wanted = images[1000:], labels[1000:]

model = nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
for _ in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
with torch.no_grad():
    print(f"trained for 100 epochs: NLL {cross_entropy(model(test), wanted):.3f}")

# A narrower prior than the one of the training, which was hardly one: choose it on validation data.
options = {"epochs": 10, "weight_decay": 3e-3, "progress": False}
for only in (None, "last layer"):
    name = only or "all weights"
    posterior = csgmcmc.posterior_from_trained(
        model, cross_entropy, loader, only=only, folder=f"{folder}/{name}", **options
    )
    p = posterior.predict(test)
    size = csgmcmc.DrawStore(f"{folder}/{name}").size_on_disk() / len(posterior.draws)
    nll = nll_loss(p.log_probs, wanted)
    print(f"10 epochs more, {name}: NLL {nll:.3f}, {size / 1000:.0f} kB for each draw")
