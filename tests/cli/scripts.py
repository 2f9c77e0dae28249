"""Scripts such as users write, for tests of `csgmcmc run`."""

CLASSES = '''
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import csgmcmc

calls = 0


def loss(outputs, labels):
    """Interrupted, not finite, or slow, as files tell."""
    global calls
    calls += 1
    if Path("slow").exists():  # very slow after a number of calls, for signals that come late
        time.sleep(0.1 if calls <= int(Path("slow").read_text()) else 1)
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


def with_numpy():
    """The data set draws from a generator of numpy, and N is taken from the data set."""
    model, loss, data, _ = make_run()
    generator = np.random.default_rng(7)

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return len(data.dataset)

        def __getitem__(self, index):
            inputs, label = data.dataset[index]
            return inputs + float(generator.normal()), label

    options = {"generators": [generator]}
    loader = DataLoader(Noisy(), 10)
    return {"model": model, "loss": loss, "data": loader, "chain_options": options}


def frozen():
    model, loss, data, held_out = make_run()
    model[0].requires_grad_(False)
    return model, loss, data, held_out


GLOBAL = nn.Linear(4, 2)


def same_model():
    return GLOBAL, loss, make_run()[2]


def diverges():
    """In all chains but the first."""
    model, _, data, _ = make_run()
    steps = iter(range(10**6))
    bad = torch.initial_seed() > 0

    def broken(outputs, labels):
        found = nn.functional.cross_entropy(outputs, labels)
        return found * float("nan") if bad and next(steps) == 3 else found

    return model, broken, data


def never_finite():
    model, _, data, _ = make_run()
    return model, lambda outputs, labels: outputs.sum() * float("nan"), data


class Otherwise(nn.Linear):
    def forward(self, inputs):
        if isinstance(inputs, dict):
            raise RuntimeError("it takes tensors")
        return super().forward(inputs)


def called_otherwise():
    def loss(model, batch):
        return nn.functional.cross_entropy(model(batch["inputs"]), batch["labels"])

    batches = [{"inputs": inputs, "labels": labels} for inputs, labels in make_run()[2]]
    return {"model": Otherwise(4, 2), "loss": loss, "data": batches, "num_data": 40}


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
