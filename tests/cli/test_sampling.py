import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from csgmcmc import Task
from csgmcmc.cli.sampling import count_chains, divided
from csgmcmc.distributed import ProcessLayout

DATA = TensorDataset(torch.arange(12))
PARTS = [ProcessLayout(replica_id=replica, replicas=2) for replica in range(2)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_replicas_see_all_data_between_them(shuffle):
    loader = DataLoader(DATA, batch_size=3, shuffle=shuffle, drop_last=True)
    parts = [divided(loader, place, 0) for place in PARTS]
    assert [len(part) for part in parts] == [2, 2]
    assert all(part.batch_size == 3 and part.drop_last for part in parts)
    seen = torch.cat([batch for part in parts for (batch,) in part])
    assert seen.sort().values.tolist() == list(range(12))
    assert (seen.tolist() == [*range(0, 12, 2), *range(1, 12, 2)]) is not shuffle


def test_a_loader_that_is_divided_already_stays():
    loader = DataLoader(DATA, batch_size=3, sampler=PARTS[0].data_sampler(DATA))
    assert divided(loader, PARTS[0], 0) is loader
    whole = DataLoader(DATA, batch_size=3)
    assert divided(whole, ProcessLayout(), 0) is whole


@pytest.mark.parametrize(
    "loader",
    [
        [DATA[:3]],
        DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 12, 12)),
        DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 3, False)),
    ],
)
def test_what_cannot_be_divided_is_refused(loader):
    with pytest.raises(ValueError, match="cannot be divided among 2 processes: give a DataLoader"):
        divided(loader, PARTS[0], 0)


def test_chains_are_counted_by_processes(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert [count_chains(chains) for chains in (None, 3)] == [1, 3]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [count_chains(chains) for chains in (None, 1, 4)] == [2, 1, 4]
    with pytest.raises(ValueError, match="chains=3 cannot be divided among 2 processes"):
        count_chains(3)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize(("rows", "replicas"), [(1400, 8), (1400, 4), (64, 1), (640, 5)])
def test_an_epoch_has_as_many_steps_as_the_divided_loader(rows, replicas, drop_last):
    data = TensorDataset(torch.zeros(rows, 1), torch.zeros(rows).long())
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=drop_last)
    task = Task(nn.Linear(1, 2), nn.functional.cross_entropy, loader)
    part = divided(loader, ProcessLayout(replica_id=0, replicas=replicas), 0)
    assert task.steps_per_epoch(replicas) == len(part)
