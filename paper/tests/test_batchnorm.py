import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paper.batchnorm import estimate_statistics


def network() -> Any:
    torch.manual_seed(1)
    layers = [nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3), nn.Linear(3, 2)]
    return nn.Sequential(*layers)


def ragged_batches() -> list[torch.Tensor]:
    """Of different sizes and distributions, so that their statistics differ."""
    generator = torch.Generator().manual_seed(0)
    sizes = enumerate([5, 2, 8], start=1)
    return [scale * torch.randn(size, 4, generator=generator) for scale, size in sizes]


@pytest.mark.parametrize("with_targets", [True, False])
def test_statistics_are_averages_over_the_data(with_targets):
    model, batches = network(), ragged_batches()
    before, state = copy.deepcopy(model), torch.get_rng_state()
    loader: Any = [(batch, torch.zeros(len(batch))) for batch in batches]
    estimate_statistics(model, loader if with_targets else batches)
    features = [model[0](batch).detach() for batch in batches]
    shares = [len(batch) / 15 for batch in batches]
    mean = sum(share * each.mean(0) for share, each in zip(shares, features, strict=True))
    variance = sum(share * each.var(0) for share, each in zip(shares, features, strict=True))
    assert_close(model[2].running_mean, mean, rtol=1e-5, atol=1e-6)
    assert_close(model[2].running_var, variance, rtol=1e-5, atol=1e-6)
    assert model[2].momentum == 0.1
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert_close(dict(model.named_parameters()), dict(before.named_parameters()), rtol=0, atol=0)
    assert not model[2]._forward_pre_hooks


def test_data_are_not_read_without_running_statistics():
    estimate_statistics(nn.Linear(4, 2), (pytest.fail("read") for _ in range(1)))
    estimate_statistics(nn.BatchNorm1d(4, track_running_stats=False), [])
