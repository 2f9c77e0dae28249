import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, Chain, Constant, DrawStore, Keep
from csgmcmc.estimators.chains import Batches
from csgmcmc.loop import StepInfo


def batches_of(rows: int, batch_size: int) -> Batches:
    features = torch.arange(rows, dtype=torch.float32).unsqueeze(1)
    every_row = torch.arange(rows)
    return Batches((features, every_row), [every_row], batch_size, seed=0)


@pytest.mark.parametrize(("rows", "batch_size"), [(33, 32), (101, 10), (64, 32), (5, 32), (1, 1)])
def test_epoch_has_every_row_once_in_batches_of_nearly_equal_size(rows, batch_size):
    batches = batches_of(rows, batch_size)
    epoch = list(batches)
    sizes = [len(targets) for _, (targets,) in epoch]
    assert len(sizes) == len(batches)
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    seen = torch.cat([targets for _, (targets,) in epoch])
    assert torch.equal(seen.sort()[0], torch.arange(rows))
    assert all(torch.equal(features[:, 0].long(), targets) for features, (targets,) in epoch)


def test_order_of_each_epoch_comes_from_the_seed():
    batches, again = batches_of(20, 20), batches_of(20, 20)
    (first,), (second,) = batches, batches
    assert not torch.equal(first[0], second[0])
    assert torch.equal(next(iter(again))[0], first[0])


def test_batches_of_stacked_chains_equal_those_of_each_chain_alone():
    features = torch.arange(30.0).unsqueeze(1)
    rows = [torch.arange(3, 30), torch.arange(25), torch.arange(0, 30, 1)]
    together = Batches((features, features), rows, 7, seed=4, copies=1)
    batches = list(together)
    assert together.rows_per_epoch == 25
    for chain, own in enumerate(rows):
        order = torch.randperm(len(own), generator=torch.Generator().manual_seed(4 + chain))
        expected = own[order[:25]]
        found = torch.cat([inputs[chain, :, 0] for inputs, _ in batches])
        assert torch.equal(found.long(), expected)
        alone = Batches((features, features), rows, 7, seed=4, chain_ids=[chain])
        both = zip(batches, alone, strict=True)
        assert all(torch.equal(one[0][chain], other[0]) for one, other in both)


def test_run_resumes_exactly_without_global_generators(tmp_path):
    """The order is the generator's own, whatever the network draws from the global ones."""

    def loss(outputs, columns):
        return cross_entropy(outputs, columns[0])

    def make_chain(path, **options) -> Chain:
        torch.manual_seed(5)
        features = torch.randn(20, 3)
        table = (features, (features[:, 0] > 0).long())
        batches = Batches(table, [torch.arange(20)], 6, seed=0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.3), nn.Linear(4, 2))
        sampler = SGHMC(model.parameters(), lr=0.1, num_data=20, seed=3)
        every = {"checkpoint_every": 1, "progress": False}
        data = (loss, batches, sampler, Constant(30, keep=Keep(every=3)), DrawStore(path))
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
