"""The steps of a loop of another package know which chain they are of, and of which seed."""

import pytest
import torch
from torch import nn

from csgmcmc import SGHMC, Constant, DrawStore, MemoryDraws
from csgmcmc.draws.lock import is_locked
from csgmcmc.integrations.accelerate import AcceleratedSteps
from csgmcmc.integrations.lightning import LightningSteps

SCHEDULE = Constant(4, every=1)


def test_the_seed_that_is_written_is_that_of_the_checkpoint(tmp_path):
    """Without seed= each run makes up one of its own, until it loads the other's."""
    model, store = nn.Linear(2, 1), DrawStore(tmp_path)
    first, again = (SGHMC(model.parameters(), lr=0.1, num_data=1) for _ in range(2))
    steps = AcceleratedSteps(again, SCHEDULE)
    again.load_state_dict(first.state_dict())
    steps.begin(store, writes=True, replicas=1)
    steps.keep(model, store, steps.advance(), writes=True)
    assert store.headers()[0]["provenance"]["seed"] == first.noise.seed


def test_the_chain_is_the_samplers_or_else_what_is_asked_for():
    params = [nn.Parameter(torch.zeros(2))]
    sampler = SGHMC(params, lr=0.1, num_data=1, chain_id=2)
    assert AcceleratedSteps(sampler, SCHEDULE, chain_id=2).chain_id == 2
    with pytest.raises(ValueError, match="chain=1, but the sampler draws the noise of chain 2"):
        AcceleratedSteps(sampler, SCHEDULE, chain_id=1)
    steps = AcceleratedSteps(sampler, SCHEDULE)
    sampler.reseed(chain_id=5)
    assert steps.chain_id == 5
    plain = torch.optim.SGD(params, lr=0.1)
    assert [AcceleratedSteps(plain, SCHEDULE, chain_id=c).chain for c in (None, 3)] == [0, 3]
    with pytest.raises(ValueError, match="chain must be at least 0, got -1"):
        AcceleratedSteps(plain, SCHEDULE, chain_id=-1)


@pytest.mark.parametrize(("kind", "held"), [(LightningSteps, True), (AcceleratedSteps, False)])
def test_a_lock_is_held_only_where_the_end_is_told(tmp_path, kind, held):
    model, store = nn.Linear(2, 1), DrawStore(tmp_path)
    steps = kind(SGHMC(model.parameters(), lr=0.1, num_data=1), SCHEDULE)
    steps.begin(store, writes=True, replicas=1)
    steps.keep(model, store, steps.advance(), writes=True)
    assert is_locked(tmp_path / "chains" / "0000.lock") == held
    store.close()


def test_only_the_process_that_writes_looks_at_draws_and_keeps_them():
    model, draws = nn.Linear(2, 1), MemoryDraws()
    draws.append(model, step=1)
    steps = AcceleratedSteps(SGHMC(model.parameters(), lr=0.1, num_data=1), SCHEDULE)
    steps.begin(draws, writes=False, replicas=1)
    steps.keep(model, draws, SCHEDULE(0), writes=False)
    assert len(draws) == 1
    with pytest.raises(ValueError, match="chain 0 has begun already"):
        steps.begin(draws, writes=True, replicas=1)
