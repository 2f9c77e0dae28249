"""Scripts such as users write, for tests of `csgmcmc run`."""

CLASSES = '''
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import csgmcmc

calls = 0


def loss(outputs, labels):
    """Interrupted, not finite, or slow, as files tell."""
    global calls
    calls += 1
    if Path("slow").exists():
        time.sleep(0.1)
    if Path("stop").exists() and calls == int(Path("stop").read_text()):
        raise KeyboardInterrupt
    found = nn.functional.cross_entropy(outputs, labels)
    return found * float("nan") if Path("diverge").exists() and calls == 15 else found


def make_run():
    inputs = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    train, held_out = random_split(data, [40, 20])
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    return model, loss, DataLoader(train, 10, shuffle=True), DataLoader(held_out, 20)


def with_recipe():
    model, loss, data, held_out = make_run()
    recipe = csgmcmc.Recipe(lr=0.3, cycles=2, epochs=6, draws_per_cycle=1, seed=5)
    return {"model": model, "loss": loss, "data": data, "recipe": recipe}


def with_generator():
    """The loader shuffles with a generator of its own."""
    model, loss, data, _ = make_run()
    generator = torch.Generator().manual_seed(7)
    return model, loss, DataLoader(data.dataset, 10, shuffle=True, generator=generator)


def frozen():
    model, loss, data, held_out = make_run()
    model[0].requires_grad_(False)
    return model, loss, data, held_out


GLOBAL = nn.Linear(4, 2)


def same_model():
    return GLOBAL, loss, make_run()[2]


def not_a_task():
    return 3


def no_module():
    return "model", loss, []


def wants(something):
    return make_run()


def wrong():
    raise ValueError("the script's own trouble")


def wrong_loss():
    model, _, data, _ = make_run()
    return model, lambda outputs, labels: nn.functional.cross_entropy(outputs, labels[:3]), data
'''

REGRESSION = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc.posterior import Gaussian


def make_run():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(60, 3, generator=generator)
    targets = inputs[:, :1] + 0.3 * torch.randn(60, 1, generator=generator)
    train = TensorDataset(inputs[:40], targets[:40])
    held_out = TensorDataset(inputs[40:], targets[40:])

    def loss(outputs, targets):
        return ((outputs - targets) ** 2).mean() / (2 * 0.09)

    return csgmcmc.Task(
        nn.Linear(3, 1),
        loss,
        DataLoader(train, 10, shuffle=True),
        DataLoader(held_out, 20),
        likelihood=Gaussian(variance=0.09),
        recipe=csgmcmc.Recipe(lr=0.01, cycles=2, epochs=6, exploration=0.5),
    )


def forgotten():
    task = make_run()
    return task.model, task.loss, task.data, task.validation
"""
