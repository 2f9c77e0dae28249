"""Options and parameters of samplers: what is refused, and what is stored as plain values."""

# Wrong types are given on purpose.
# pyright: reportArgumentType=false

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from csgmcmc import SGHMC, SGLD
from tests.samplers.registry import SAMPLERS
from tests.samplers.test_optimizer import through_a_file
from tests.support import make, same_bits, small_model, train

NUMBERS = [
    np.float64(0.05),
    np.float32(0.05),
    np.array(0.05),
    torch.tensor(0.05, requires_grad=True),
]


@pytest.mark.parametrize("lr", NUMBERS, ids=lambda value: type(value).__name__)
def test_numbers_of_any_kind_become_plain_ones(lr):
    chain = make(SGHMC, [torch.zeros(2)], lr=lr, momentum=np.float32(0.5))
    group = chain.param_groups[0]
    kinds = {type(group[name]) for name in ("lr", "initial_lr", "momentum")}
    assert kinds == {float}
    assert group["lr"] == pytest.approx(0.05)
    assert type(chain.defaults["lr"]) is float
    through_a_file(chain.state_dict())


@pytest.mark.parametrize("value", ["0.1", np.array([0.1, 0.2]), None, [0.1], True])
@pytest.mark.parametrize("option", ["lr", "num_data", "momentum"])
def test_options_that_are_not_numbers_are_refused(option, value):
    with pytest.raises(ValueError, match=f"^{option} must be a number, got"):
        make(SGHMC, [torch.zeros(2)], **{option: value})


@pytest.mark.parametrize(
    "params", [[], [torch.zeros(2, dtype=torch.int64)], [torch.eye(2).to_sparse()]]
)
def test_parameters_that_cannot_be_sampled_are_refused(params):
    with pytest.raises(ValueError, match="param"):
        SGLD(params, lr=0.1, num_data=10)


def test_fused_is_one_of_three_values():
    for value in ("yes", 2):
        with pytest.raises(ValueError, match="fused must be None, True or False"):
            make(SGLD, [torch.zeros(2)], fused=value)


def test_shards_of_fsdp1_are_refused():
    param = nn.Parameter(torch.zeros(2))
    param._fsdp_flattened = True  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="fully_shard"):
        SGLD([param], lr=0.1, num_data=10)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
@pytest.mark.filterwarnings("default")  # of torch's own
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_step_can_be_compiled(name):
    """From the first step on, and with the same noise."""
    plain, compiled = small_model(), small_model()
    torch._dynamo.reset()
    for model, wrap in ((plain, lambda step: step), (compiled, torch.compile)):
        chain = make(SAMPLERS[name], model.parameters(), seed=3)
        chain.step = wrap(chain.step)
        train(model, chain, 2)
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert not same_bits(plain, small_model())
