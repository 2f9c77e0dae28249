"""`csgmcmc tune`, `run` and `report` with a function of your own: no loop, no main program.

    pip install '.[plot,tune]'
    cd examples
    csgmcmc tune own_task:make_run --out runs/own_task-tune --trials 3 --epochs 8
    csgmcmc run own_task:make_run --config runs/own_task-tune/recipe.json --epochs 16
    csgmcmc report runs/own_task                 # and open runs/own_task/report.html

The search tries three recipes on validation data; the run takes the best of them, prints what
`check` says, and can be stopped and repeated at any time. About 30 seconds in all.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc


def make_run() -> csgmcmc.Task:
    """The model, the loss, the data, and what is optional: validation data, and others."""
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = images.float() / 16
    upside_down = images[1400:].flip(-1)  # not digits: its entropy is compared in the report
    return csgmcmc.Task(
        model=nn.Sequential(nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10)),
        loss=nn.functional.cross_entropy,
        data=DataLoader(TensorDataset(images[:800], labels[:800]), batch_size=50, shuffle=True),
        validation=DataLoader(TensorDataset(images[800:1400], labels[800:1400]), batch_size=300),
        other=DataLoader(TensorDataset(upside_down), batch_size=300),
        recipe=csgmcmc.Recipe(lr=0.2, temperature=0.1, exploration=0.5, draws_per_cycle=5),
    )
