"""A script such as users write, for tests of `csgmcmc run`."""

SCRIPT = '''
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc

calls = 0
inputs = torch.randn(60, 4)  # seeded while the script is imported
data = TensorDataset(inputs, (inputs[:, 0] > 0).long())


def loss(outputs, labels):
    """Interrupted, not finite, or slow, as files tell."""
    global calls
    calls += torch.is_grad_enabled()  # not those that look at examples
    if Path("slow").exists():  # very slow after a number of calls, for signals that come late
        time.sleep(0.1 if calls <= int(Path("slow").read_text()) else 1)
    if Path("stop").exists() and calls == int(Path("stop").read_text()):
        raise KeyboardInterrupt
    found = nn.functional.cross_entropy(outputs, labels)
    return found * float("nan") if Path("diverge").exists() and calls == 15 else found


def make_chain(draws, chain_id=0, lr=0.1, loss=loss, loader=None, **options):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    sampler = csgmcmc.SGHMC(model.parameters(), lr, num_data=60, seed=0, chain_id=chain_id)
    schedule = csgmcmc.Cyclical(24, 2, exploration=0.5, draws_per_cycle=2)
    loader = loader or DataLoader(data, 10, shuffle=True)
    options = {"progress": False, "checkpoint_every": 3, **options}
    return csgmcmc.Chain(model, loss, loader, sampler, schedule, draws, **options)


def with_generator(draws, chain_id, seed):
    """The loader shuffles with a generator of its own."""
    order = torch.Generator().manual_seed(seed)
    return make_chain(draws, chain_id, loader=DataLoader(data, 10, shuffle=True, generator=order))


def with_numpy(draws, chain_id, seed):
    """The data set draws from a generator of numpy."""
    generator = np.random.default_rng(seed)

    class Noisy(torch.utils.data.Dataset):
        def __len__(self):
            return len(data)

        def __getitem__(self, index):
            inputs, label = data[index]
            return inputs + float(generator.normal()), label

    return make_chain(draws, chain_id, loader=DataLoader(Noisy(), 10), generators=[generator])


def with_layout(draws, layout):
    """The processes of a chain divide the data."""
    loader = DataLoader(data, 10, sampler=layout.data_sampler(data))
    return make_chain(draws, layout.chain_id, loader=loader, layout=layout, device=layout.device)


def on_device(draws, device):
    Path("device").write_text(str(device))
    return make_chain(draws)


def frozen(draws, chain_id):
    """Frozen weights are stored once."""
    chain = make_chain(draws, chain_id)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        chain.model[0].reset_parameters()  # the same in all chains
    chain.model[0].requires_grad_(False)
    only = csgmcmc.draws.keep_trainable(chain.model)
    trained = [param for param in chain.model.parameters() if param.requires_grad]
    sampler = csgmcmc.SGHMC(trained, 0.1, num_data=60, seed=0, chain_id=chain_id)
    store = csgmcmc.DrawStore(draws.path, only=only)
    parts = (chain.model, loss, chain.data, sampler, chain.schedule, store)
    return csgmcmc.Chain(*parts, progress=False)


def own_store():
    return make_chain(csgmcmc.DrawStore("own"))


def in_memory():
    return make_chain(None)


def without_chain_id(draws):
    return make_chain(draws)


def diverges(draws, chain_id):
    """In all chains but the first."""
    steps = iter(range(10**6))

    def broken(outputs, labels):
        found = nn.functional.cross_entropy(outputs, labels)
        trained = chain_id and torch.is_grad_enabled()  # not an evaluation of examples
        return found * float("nan") if trained and next(steps) == 3 else found

    return make_chain(draws, chain_id, loss=broken)


def too_hot(draws):
    return make_chain(draws, lr=60.0)


def bad_lr(draws):
    return make_chain(draws, lr=-1.0)


def not_a_chain():
    return 3


def wrong():
    raise ValueError("the script's own trouble")


def wrong_loss(draws):
    return make_chain(draws, loss=lambda outputs, labels: loss(outputs, labels[:3]))
'''
