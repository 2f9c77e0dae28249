import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, Chain, Constant, DrawStore
from csgmcmc.chain import StepInfo
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


def test_a_run_on_them_resumes_exactly_though_global_generators_are_not_saved(tmp_path):
    """The order is the generator's own, whatever the network draws from the global ones."""

    def make_chain(path, **options) -> Chain:
        torch.manual_seed(5)
        features = torch.randn(20, 3)
        generator = torch.Generator().manual_seed(0)
        batches = Batches(features, (features[:, 0] > 0).long(), 6, generator)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 2))
        sampler = SGHMC(model.parameters(), lr=0.1, num_data=20, seed=3)
        every = {"checkpoint_every": 1, "progress": False}
        data = (cross_entropy, batches, sampler, Constant(30, every=3), DrawStore(path))
        return Chain(model, *data, **every, **options)

    def stop(info: StepInfo) -> None:
        if info.tick.step == 10:  # in the middle of an epoch of 4 batches
            raise InterruptedError

    whole = make_chain(tmp_path / "whole").run()
    with pytest.raises(InterruptedError):
        make_chain(tmp_path / "parts", callbacks=stop).run()
    resumed = make_chain(tmp_path / "parts").run(resume=True)
    assert len(whole) == len(resumed) == 10
    for one, other in zip(whole, resumed, strict=True):
        for name, value in one.tensors().items():
            assert torch.equal(value, other.tensors()[name])
