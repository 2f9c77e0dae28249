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
from csgmcmc.errors import DrawConflictError, StoreError, StoreWarning

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
    store.append(model, step=17, cycle=1)
    store.close()
    again = DrawStore(store.path)
    assert [draw.step for draw in again] == [7, 9, 17]
    assert again.verify() == []


def test_a_store_of_0_2_0_is_read(tmp_path):
    store = DrawStore(shutil.copytree(STORE.with_name("store-0.2.0"), tmp_path / "store"))
    assert store.problems == store.verify() == []
    assert [(draw.step, draw.cycle) for draw in store] == [(11, 1), (13, 1)]
    assert store.headers()[0]["versions"]["csgmcmc"] == "0.2.0"


def test_a_store_of_0_2_0_with_sharded_draws_is_read(tmp_path):
    """Two processes have written draws of a network with a frozen and a tied layer (format 2)."""
    path = shutil.copytree(STORE.with_name("sharded-store-0.2.0"), tmp_path / "store")
    store = DrawStore(path)
    assert store.problems == store.verify() == []
    first, second = (draw.tensors() for draw in store)
    assert [(draw.step, draw.cycle) for draw in store] == [(3, 0), (5, 1)]
    assert first["first.weight"].shape == (13, 6)
    torch.testing.assert_close(second["first.weight"], first["first.weight"], rtol=0, atol=0)
    torch.testing.assert_close(second["second.weight"], first["second.weight"] + 0.25)
    torch.testing.assert_close(second["again.weight"], second["last.weight"], rtol=0, atol=0)


@pytest.fixture
def old_sharded(tmp_path) -> Path:
    return shutil.copytree(STORE.with_name("sharded-store-0.2.0"), tmp_path / "sharded")


def test_append_to_a_sharded_store_of_0_2_0(old_sharded):
    frozen = ("first.weight", "first.bias")
    store = DrawStore(old_sharded, only=lambda name: name not in frozen)
    tensors = store[1].tensors()
    store.append(tensors, step=9, cycle=1)
    with pytest.raises(DrawConflictError, match="step 3"):
        store.append(tensors, step=3)
    store.close()
    again = DrawStore(old_sharded)
    assert [draw.step for draw in again] == [3, 5, 9]
    assert again.problems == again.verify() == []
    torch.testing.assert_close(again[2].tensors(), tensors, rtol=0, atol=0)
    assert (old_sharded / "draws" / "0000-000000009.safetensors").exists()


@pytest.mark.parametrize("name", ["draws/0000-000000003-00002-of-00002.safetensors",
                                  "draws/0000-000000003.safetensors.index.json"])  # fmt: skip
def test_damage_in_a_sharded_store_of_0_2_0_is_named(old_sharded, name):
    file = old_sharded / name
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)
    store = DrawStore(old_sharded)
    assert [file.name in damage for damage in store.verify()] == [True]
    with pytest.raises(StoreError, match=rf"{file.name}.*damaged"):
        store[0].tensors()
    assert store[1].tensors()
    file.unlink()
    with pytest.warns(StoreWarning, match=f"{name}: missing"):
        assert [draw.step for draw in DrawStore(old_sharded)] == [5]
