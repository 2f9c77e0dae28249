import pytest
import torch

from csgmcmc.estimators.batches import Batches


def batches_of(rows: int, batch_size: int) -> Batches:
    features = torch.arange(rows, dtype=torch.float32).unsqueeze(1)
    generator = torch.Generator().manual_seed(0)
    return Batches(features, torch.arange(rows), batch_size, generator)


@pytest.mark.parametrize(("rows", "batch_size"), [(33, 32), (101, 10), (64, 32), (5, 32), (1, 1)])
def test_an_epoch_has_every_row_once_in_batches_of_nearly_one_size(rows, batch_size):
    batches = batches_of(rows, batch_size)
    epoch = list(batches)
    sizes = [len(targets) for _, targets in epoch]
    assert len(sizes) == len(batches)
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    assert torch.equal(torch.cat([targets for _, targets in epoch]).sort()[0], torch.arange(rows))
    assert all(torch.equal(features[:, 0].long(), targets) for features, targets in epoch)


def test_each_epoch_has_an_order_of_its_own_that_is_the_generators():
    batches, again = batches_of(20, 20), batches_of(20, 20)
    (first,), (second,) = batches, batches
    assert not torch.equal(first[1], second[1])
    assert torch.equal(next(iter(again))[1], first[1])
