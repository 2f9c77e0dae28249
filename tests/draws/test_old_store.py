"""A store that csgmcmc 0.1.0 has written still opens.

`fixtures/store-0.1.0` was written by commit 3a08440 with `SGHMC(lr=0.05, momentum=0.9,
weight_decay=1e-3, num_data=6, seed=3)` over `nn.Linear(2, 2)`, all weights 0.5 at the start, and
`Cyclical(steps=20, cycles=2, exploration=0.5, samples_per_cycle=2)`. The data were
`TensorDataset(torch.arange(12.0).reshape(6, 2) / 12, torch.tensor([0, 1, 0, 1, 0, 1]))` in a
`DataLoader(batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(1))`, the loss
`cross_entropy`. The run was stopped in step 12; its checkpoint is that of step 10.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from csgmcmc import DrawStore, Posterior

STORE = Path(__file__).parent / "fixtures" / "store-0.1.0"


@pytest.fixture
def store(tmp_path) -> DrawStore:
    return DrawStore(shutil.copytree(STORE, tmp_path / "store"))


def test_its_draws_are_read(store):
    assert store.problems == []
    assert store.verify() == []
    first, second = store
    assert (first.chain_id, first.step, first.cycle, first.stage) == (0, 7, 0, "sample")
    assert (second.chain_id, second.step, second.cycle, second.stage) == (0, 9, 0, "sample")
    assert [draw.log_likelihood for draw in store] == [None, -2.5]
    torch.testing.assert_close(
        first.tensors(),
        {
            "bias": torch.tensor([0.633906900882721, 0.4053076505661011]),
            "weight": torch.tensor(
                [[0.48502016067504883, 0.44571128487586975], [0.5262822508811951, 0.46365287899971]]
            ),
        },
        rtol=0,
        atol=0,
    )
    assert store.headers()[0]["versions"]["csgmcmc"] == "0.1.0"
    assert store.headers()[0]["provenance"]["seed"] == 3


def test_it_predicts_and_takes_further_draws(store):
    model = nn.Linear(2, 2)
    predictive: Any = Posterior(model, store).predict(torch.zeros(3, 2))
    assert predictive.probs.shape == (3, 2)
    store.set_log_likelihood(store[0], -3.0)
    store.append(model, step=17, cycle=1)
    store.close()
    again = DrawStore(store.path)
    assert [(draw.step, draw.log_likelihood) for draw in again] == [
        (7, -3.0),
        (9, -2.5),
        (17, None),
    ]
    assert again.verify() == []
