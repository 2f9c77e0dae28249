import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, Chain, Constant, DrawStore
from csgmcmc.chain import StepInfo
from csgmcmc.estimators.batches import Batches


def batches_of(rows: int, batch_size: int) -> Batches:
    features = torch.arange(rows, dtype=torch.float32).unsqueeze(1)
    every_row = torch.arange(rows)
    return Batches(features, [every_row], [every_row], batch_size, seeds=[0], stacked=False)


@pytest.mark.parametrize(("rows", "batch_size"), [(33, 32), (101, 10), (64, 32), (5, 32), (1, 1)])
def test_an_epoch_has_every_row_once_in_batches_of_nearly_one_size(rows, batch_size):
    batches = batches_of(rows, batch_size)
    epoch = list(batches)
    sizes = [len(targets) for _, (targets,) in epoch]
    assert len(sizes) == len(batches)
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    seen = torch.cat([targets for _, (targets,) in epoch])
    assert torch.equal(seen.sort()[0], torch.arange(rows))
    assert all(torch.equal(features[:, 0].long(), targets) for features, (targets,) in epoch)


def test_each_epoch_has_an_order_of_its_own_that_is_the_generators():
    batches, again = batches_of(20, 20), batches_of(20, 20)
    (first,), (second,) = batches, batches
    assert not torch.equal(first[0], second[0])
    assert torch.equal(next(iter(again))[0], first[0])


def test_stacked_chains_have_the_batches_that_each_would_have_alone():
    features = torch.arange(30.0).unsqueeze(1)
    rows = [torch.arange(3, 30), torch.arange(25), torch.arange(0, 30, 1)]
    options: dict = {"batch_size": 7}
    together = Batches(features, [features], rows, seeds=[4, 5, 6], stacked=True, **options)
    batches = list(together)
    assert together.rows_per_epoch == 25
    for chain, own in enumerate(rows):
        alone = Batches(features, [features], [own], seeds=[4 + chain], stacked=False, **options)
        order = torch.randperm(len(own), generator=torch.Generator().manual_seed(4 + chain))
        expected = own[order[:25]]
        found = torch.cat([inputs[chain, :, 0] for inputs, _ in batches])
        assert torch.equal(found.long(), expected)
        if len(own) == together.rows_per_epoch:
            both = zip(batches, alone, strict=True)
            assert all(torch.equal(one[0][chain], other[0]) for one, other in both)


def test_a_run_on_them_resumes_exactly_though_global_generators_are_not_saved(tmp_path):
    """The order is the generator's own, whatever the network draws from the global ones."""

    def loss(outputs, columns):
        return cross_entropy(outputs, columns[0])

    def make_chain(path, **options) -> Chain:
        torch.manual_seed(5)
        features = torch.randn(20, 3)
        columns = [(features[:, 0] > 0).long()]
        batches = Batches(features, columns, [torch.arange(20)], 6, seeds=[0], stacked=False)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 2))
        sampler = SGHMC(model.parameters(), lr=0.1, num_data=20, seed=3)
        every = {"checkpoint_every": 1, "progress": False}
        data = (loss, batches, sampler, Constant(30, every=3), DrawStore(path))
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
