import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, SGLD, Chain, Constant, MemoryDraws, stack
from csgmcmc.distributed import ProcessLayout
from csgmcmc.errors import DivergedError
from tests.loop.support import Noisy
from tests.support import SIGMAS


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def data(batch_size=8, **options):
    noisy = Noisy()
    return DataLoader(TensorDataset(noisy.inputs, noisy.labels), batch_size=batch_size, **options)


def run(model, loader, chain_id=0, steps=12, draws=3, **options):
    settings = {"lr": 0.1, "num_data": 40, "momentum": 0.8, "seed": 1, "chain_id": chain_id}
    sampler, schedule = SGHMC(model.parameters(), **settings), Constant(steps, draws=draws)
    return Chain(model, cross_entropy, loader, sampler, schedule, progress=False, **options).run()


@pytest.mark.parametrize("options", [{}, {"clip": 0.5}, {"accumulate": 2}])
def test_a_chain_in_a_stack_is_the_chain_alone(options):
    """Given the same batches: weights, buffers, draws. It draws the same noise."""
    stacked = run(stack([network(s) for s in range(3)]), data(), **options)
    assert stacked.chain_ids == [0, 1, 2]
    for which in range(3):
        alone = run(network(which), data(), chain_id=which, **options)
        pairs = zip(stacked.of_chain(which), alone, strict=True)
        for ours, theirs in pairs:
            assert ours.step == theirs.step
            torch.testing.assert_close(ours.tensors(), theirs.tensors(), rtol=2e-4, atol=2e-5)


def test_separate_batches_deal_the_batch_out():
    stacked = run(
        stack([network(s) for s in range(2)], separate_batches=True),
        data(16),
        steps=2,
        draws=1,
    )
    inputs, labels = data(40).dataset.tensors  # pyright: ignore[reportAttributeAccessIssue]
    for which in range(2):
        own = [
            (inputs[start : start + 8], labels[start : start + 8])
            for start in (8 * which, 16 + 8 * which)
        ]
        alone = run(network(which), own, chain_id=which, steps=2, draws=1)
        pairs = zip(stacked.of_chain(which), alone, strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(ours.tensors(), theirs.tensors(), rtol=2e-4, atol=2e-5)
    with pytest.raises(ValueError, match="batch of 15 cannot be divided among 2 chains"):
        run(stack([network(0)] * 2, separate_batches=True), data(15), steps=1, draws=1)


def test_the_law_does_not_depend_on_the_number_of_chains():
    """A mean over chains in the place of the sum would make the variance C times too large."""

    class Bowl(nn.Module):
        def __init__(self):
            super().__init__()
            self.point = nn.Parameter(torch.zeros(500, dtype=torch.float64))

        def forward(self):
            return self.point.square().sum() / 2

    for chains in (1, 40):
        model = stack(Bowl, chains=chains)
        sampler = SGLD(model.parameters(), lr=0.2, num_data=1, seed=1)
        draws = Chain(model, None, None, sampler, Constant(100, draws=1), progress=False).run()
        points = torch.cat([draw.tensors()["point"] for draw in draws])
        exact = SGLD.stationary_variance(1.0, lr=0.2, num_data=1)
        assert abs(float(points.var()) / exact - 1) < SIGMAS * math.sqrt(2 / len(points))


def test_dropout_differs_between_chains():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, inputs):
            return nn.functional.dropout(inputs * self.scale, 0.5)

    outputs = stack(Dropped(), chains=2)(torch.ones(200))
    assert outputs.shape == (2, 200)
    assert not torch.equal(outputs[0], outputs[1])


def test_functions_make_different_starts_and_one_model_the_same():
    different: Any = stack(lambda: nn.Linear(3, 2), chains=2).inner.weight
    assert not torch.equal(different[0], different[1])
    same: Any = stack(nn.Linear(3, 2), chains=2).inner.weight
    assert torch.equal(same[0], same[1])
    assert same.shape == (2, 2, 3)


def test_tied_weights_stay_tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    stacked: Any = stack(model, chains=3)
    assert stacked.inner[1].weight is stacked.inner[0].weight
    assert len(list(stacked.parameters())) == 3


def test_the_chain_that_diverges_is_named():
    def spoil(moment):
        with torch.no_grad():
            moment.chain.model.inner[0].weight[1].fill_(math.nan)

    model = stack([network(s) for s in range(3)])
    sampler = SGHMC(model.parameters(), lr=0.1, num_data=40, chain_id=5)
    chain = Chain(
        model, cross_entropy, data(), sampler, Constant(9), MemoryDraws(),
        callbacks=spoil, progress=False,
    )  # fmt: skip
    with pytest.raises(DivergedError, match=r"chain 6 diverged") as error:
        chain.run()
    assert error.value.chain_ids == [6]


def test_stack_needs_a_number():
    with pytest.raises(ValueError, match="chains must be"):
        stack(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="number of models"):
        stack([])


def test_buffers_that_a_module_replaces_are_kept():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))
            self.register_buffer("count", torch.zeros(()))

        def forward(self, inputs):
            self.count = self.count + self.weight.detach()
            return inputs * self.weight

    model = stack(Counting(), chains=2)
    for _ in range(3):
        model(torch.ones(4))
    assert [float(state["count"]) for state in model.chain_tensors()] == [3, 3]

    sampler = SGLD(model.parameters(), lr=0.01, num_data=1)
    loss, batches = (lambda outputs, _: outputs.mean()), [(torch.ones(4), torch.ones(4))]
    Chain(model, loss, batches, sampler, Constant(2), clip=0.1, progress=False).run()
    assert model.inner.count.shape == (2,)


def test_each_process_has_stacked_chains_of_its_own():
    model = stack(nn.Linear(2, 2), chains=4)

    def chain(number):
        sampler = SGLD(model.parameters(), lr=0.1, num_data=1, seed=1, chain_id=number)
        return Chain(
            model, None, None, sampler, Constant(1), layout=ProcessLayout(chain_id=1, chains=2)
        )

    assert chain(4).chain_id == 4
    with pytest.raises(ValueError, match="chain_id=4"):
        chain(1)
