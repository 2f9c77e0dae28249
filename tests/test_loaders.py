from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from csgmcmc.distributed import ProcessLayout
from csgmcmc.loaders import describe_loader, size_of, to_device

DATA = TensorDataset(torch.randn(30, 3), torch.zeros(30).long())
LOADER = DataLoader(DATA, batch_size=5)


def test_n_is_what_an_epoch_goes_through():
    assert size_of(LOADER) == 30
    assert size_of(DataLoader(DATA, sampler=SubsetRandomSampler(range(20)))) == 20
    assert size_of(DataLoader(DATA, sampler=DistributedSampler(DATA, 3, 0))) == 30
    with pytest.raises(ValueError, match="has 50 of the 30 data points of its set: give num_data"):
        size_of(DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 30, 50)))
    with pytest.raises(ValueError, match="size of the data set is not known: give num_data"):
        size_of([DATA[:5]])


def test_a_description_names_what_orders_the_batches():
    assert describe_loader(LOADER) == {
        "loader": "DataLoader",
        "sampler": "SequentialSampler",
        "num_workers": 0,
        "batches": 6,
        "batch_size": 5,
        "examples": 30,
    }
    assert describe_loader(iter([]))["batches"] is None


def test_a_description_is_the_same_for_any_number_of_processes_that_share_batches():
    def described(replicas: int, global_batch_size: int | None = None) -> dict[str, Any]:
        layout = ProcessLayout(replicas=replicas)
        order = layout.data_sampler(DATA, global_batch_size=global_batch_size)
        batch_size = 8 // replicas
        return describe_loader(DataLoader(DATA, batch_size=batch_size, sampler=order))

    assert described(1, 8) == described(2, 8) == described(4, 8)
    assert described(4, 8)["batch_size"] == 8
    assert described(2) != described(4)  # which fill up 30 examples to 30 and to 32


def test_all_tensors_of_a_batch_are_moved():
    batch = {"x": torch.ones(2), "more": (torch.zeros(1), "text", 3)}
    moved = to_device(batch, torch.device("meta"))
    assert moved["x"].is_meta
    assert moved["more"][0].is_meta
    assert moved["more"][1:] == ("text", 3)
    assert not batch["x"].is_meta
