"""From a trained network to a posterior, and from that to one network again.

A network is trained as usual. `posterior_from_trained` samples around its weights in four cycles,
weighs draws and network by held-out data, and scales their logits; `distill` trains one network on
the probabilities of the average.

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
order = torch.randperm(len(images))
images, labels = images[order].float() / 16, labels[order]
loader = DataLoader(TensorDataset(images[:500], labels[:500]), batch_size=50, shuffle=True)
held_out = [(images[500:1000], labels[500:1000])]
test, wanted = images[1000:], labels[1000:]


def make_network():
    return nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))


model = make_network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
for _ in range(30):
    for x, y in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
with torch.no_grad():
    print(f"trained for 30 epochs: NLL {cross_entropy(model(test), wanted):.3f}")

options = {"epochs": 40, "cycles": 4, "weight_decay": 1e-3, "folder": folder, "progress": False}
posterior = csgmcmc.posterior_from_trained(
    model, cross_entropy, loader, held_out=held_out, **options
)
nll = nll_loss(posterior.predict(test).log_probs, wanted)
print(f"average of the network and {len(posterior.draws) - 1} draws: NLL {nll:.3f}")

student = make_network()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
posterior.progress = False
posterior.distill(student, loader, optimizer, epochs=100, mix=True)
with torch.no_grad():
    print(f"one network that has learned from it: NLL {cross_entropy(student(test), wanted):.3f}")
