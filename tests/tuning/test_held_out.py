import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from csgmcmc import Task
from csgmcmc.loaders import size_of
from csgmcmc.tuning.held_out import with_validation
from tests.tuning.support import make_task

NUMBERS = TensorDataset(torch.arange(100.0)[:, None], torch.zeros(100, dtype=torch.long))


def task_of(loader, **values) -> Task:
    return Task(nn.Linear(1, 2), cross_entropy, loader, **values)


def inputs_of(loader) -> list[float]:
    return torch.cat([inputs[:, 0] for inputs, _ in loader]).tolist()


def test_validation_data_of_the_task_are_used_as_they_are():
    task = make_task()
    found = with_validation(task, 0.2, seed=0)
    assert found.task is task
    assert found.words == "scored on the task's validation data"


@pytest.mark.parametrize("shuffle", [True, False])
def test_else_a_share_of_the_training_data_is_held_out(shuffle):
    loader = DataLoader(NUMBERS, batch_size=16, shuffle=shuffle, drop_last=True)
    found = with_validation(task_of(loader), 0.25, seed=0)
    data, validation = found.task.data, found.task.validation
    assert found.words == "scored on 25 of the 100 training points, which are held out"
    held = inputs_of(validation)
    assert len(held) == 25
    seen = {number for _ in range(3) for number in inputs_of(data)}
    assert not seen & set(held)
    assert size_of(data) == 75
    assert isinstance(data.sampler, RandomSampler) == shuffle
    assert (data.batch_size, data.drop_last) == (16, True)
    again = with_validation(task_of(loader), 0.25, seed=0).task.validation
    assert inputs_of(again) == held
    assert inputs_of(with_validation(task_of(loader), 0.25, seed=1).task.validation) != held


def test_n_is_that_of_what_is_left():
    """Of language models N counts tokens, and the task says how many."""
    loader = DataLoader(NUMBERS, batch_size=16)
    assert with_validation(task_of(loader, num_data=5000), 0.2, seed=0).task.num_data == 4000


def test_a_batch_larger_than_what_is_left_shrinks():
    loader = DataLoader(NUMBERS, batch_size=100, shuffle=True, drop_last=True)
    task = with_validation(task_of(loader), 0.2, seed=0).task
    assert len(task.data) == 1


class Stream(IterableDataset):
    def __iter__(self):
        return iter(NUMBERS)

    def __len__(self) -> int:
        return 100


@pytest.mark.parametrize(
    "loader",
    [
        [(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long))],
        DataLoader(Stream(), batch_size=10),
        DataLoader(NUMBERS, batch_size=None),
        DataLoader(NUMBERS, 10, sampler=SubsetRandomSampler(range(50))),
        DataLoader(NUMBERS, 10, sampler=RandomSampler(NUMBERS, replacement=True)),
    ],
)
def test_what_cannot_be_split_is_refused(loader):
    with pytest.raises(ValueError, match="its training data cannot be split: return validation="):
        with_validation(task_of(loader), 0.2, seed=0)


@pytest.mark.parametrize(
    ("share", "size", "words"),
    [
        (0.0, 100, "held_out must be above 0 and below 1, got 0.0"),
        (1.0, 100, "held_out must be above 0 and below 1, got 1.0"),
        (0.1, 3, r"held_out=0.1 of 3 training points leaves 0 to validate on and 3 to train on"),
    ],
)
def test_a_share_that_leaves_nothing_is_refused(share, size, words):
    loader = DataLoader(Subset(NUMBERS, range(size)), 10)
    with pytest.raises(ValueError, match=words):
        with_validation(task_of(loader), share, seed=0)
