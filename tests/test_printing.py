"""What `print` says of the objects of a run: one to five lines that tell what they are."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGLD, Chain, Cyclical, DrawStore, MemoryDraws, Posterior
from csgmcmc.posterior import Gaussian


def kept(draws, cycles=(0, 0, 1)):
    for step, cycle in enumerate(cycles):
        draws.append(nn.Linear(4, 3), step=step, cycle=cycle)
    return draws


def test_draws_say_how_many_there_are_and_how_large(tmp_path):
    assert str(MemoryDraws()) == "MemoryDraws: 0 draws, 0 cycles, 0 chains, 0 MB"
    assert str(kept(MemoryDraws())) == "MemoryDraws: 3 draws, 2 cycles, 1 chain, 0.00018 MB"
    store = kept(DrawStore(tmp_path / "mine"))
    words = f"3 draws, 2 cycles, 1 chain, {store.size_on_disk() / 1e6:.3g} MB"
    assert str(store) == f"DrawStore('{tmp_path / 'mine'}'): {words}"


def test_a_posterior_says_what_it_averages():
    draws = kept(MemoryDraws())
    assert str(Posterior(nn.Linear(4, 3), draws)).splitlines() == [
        "Posterior of Linear with 15 weights: 3 draws, 2 cycles, 1 chain",
        "  likelihood Categorical(dim=1, ignore_index=-100, temperature=1.0), on cpu",
        "  weights equal",
    ]
    weighed = Posterior(nn.Linear(4, 3), draws, [1, 2, 1], likelihood=Gaussian(0.25))
    assert "likelihood Gaussian(variance=0.25)" in str(weighed)
    assert str(weighed).endswith("weights from 0.25 to 0.5")


def test_a_chain_says_how_far_it_is():
    model = nn.Linear(4, 3)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=8)
    schedule = Cyclical(8, 2, exploration=0.5, draws_per_cycle=1)
    data = [(torch.zeros(8, 4), torch.arange(8) % 3)]
    chain = Chain(model, cross_entropy, data, sampler, schedule, progress=False)
    chain.run()
    assert repr(chain).splitlines() == [
        "Chain 0 of Linear: Cyclical, step 8 of 8 with 2 of 2 draws",
        "  SGLD, draws in memory",
    ]


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli", Gaussian(0.25)])
@pytest.mark.parametrize("members", [True, False])
def test_a_prediction_does_not_print_its_numbers(likelihood, members):
    posterior = Posterior(nn.Linear(4, 3), kept(MemoryDraws()), likelihood=likelihood)
    data = [(torch.randn(500, 4), torch.zeros(500, dtype=torch.long))]
    shown = str(posterior.predict_loader(data, members=members))
    assert "Predictive of 500 data points: entropy (500" in shown
    assert ("members (3, 500, 3)" in shown) == members
    assert "targets (500,)" in shown
    assert len(shown) < 200
