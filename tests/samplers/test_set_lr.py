import pytest
import torch
from torch import nn

from csgmcmc import Constant
from csgmcmc.samplers import discover

# Chains that do not begin at temperature 0, for which AdamSGHMC warns.
pytestmark = pytest.mark.filterwarnings("ignore:.*a preconditioner from a single gradient")

SAMPLERS = pytest.mark.parametrize("kind", list(discover().values()), ids=list(discover()))


def stepped(kind):
    """A sampler of two groups after one step at half of its lr."""
    groups = [{"params": [nn.Parameter(torch.ones(4))]}, {"params": [nn.Parameter(torch.ones(3))]}]
    sampler = kind(groups, lr=0.2, num_data=10, seed=0)
    Constant(3, lr_scale=0.5).apply(sampler, 0)
    for group in sampler.param_groups:
        group["params"][0].grad = torch.ones_like(group["params"][0])
    sampler.step()
    return sampler


@SAMPLERS
def test_the_lr_of_one_group_is_set_and_its_velocities_follow(kind):
    sampler, untouched = stepped(kind), stepped(kind)
    first, second = sampler.param_groups
    sampler.set_lr(first, 0.05)
    assert (first["initial_lr"], first["lr"]) == (0.05, pytest.approx(0.025))
    assert (second["initial_lr"], second["lr"]) == (0.2, 0.1)
    for index, share in enumerate((0.5, 1.0)):
        state, before = (
            one.state[one.param_groups[index]["params"][0]] for one in (sampler, untouched)
        )
        assert state.keys() == before.keys()
        for name, value in state.items():
            factor = share if name == "velocity" else 1.0
            torch.testing.assert_close(value, factor * before[name])
    Constant(3, lr_scale=0.5).apply(sampler, 1)
    assert first["lr"] == 0.025


@SAMPLERS
def test_an_lr_of_zero_is_rejected(kind):
    sampler = stepped(kind)
    with pytest.raises(ValueError, match="lr must be above 0"):
        sampler.set_lr(sampler.param_groups[0], 0.0)
