import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from csgmcmc import refresh_batchnorm
from tests.posterior.support import CLOSE, mlp, random, randomise


def network() -> Any:
    return nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3), nn.Linear(3, 2))


def ragged_batches():
    """Of different sizes and laws, so that their statistics differ."""
    sizes = [5, 2, 8]
    return [(1 + n) * random(size, 4, seed=n, dtype=torch.float32) for n, size in enumerate(sizes)]


def exact_statistics(model, batches):
    """Mean and variance of what the normalising layer gets, averaged over data points."""
    total = sum(len(batch) for batch in batches)
    features = [model[0](batch).double() for batch in batches]
    shares = [len(batch) / total for batch in batches]
    mean = sum(share * feature.mean(0) for share, feature in zip(shares, features, strict=True))
    variance = sum(share * feature.var(0) for share, feature in zip(shares, features, strict=True))
    return mean, variance


def assert_exact(model, batches):
    mean, variance = exact_statistics(model, batches)
    assert_close(model[2].running_mean.double(), mean, **CLOSE)
    assert_close(model[2].running_var.double(), variance, **CLOSE)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("with_targets", [True, False])
def test_statistics_are_averages_over_the_data(momentum, with_targets):
    model, batches = randomise(network(), seed=1), ragged_batches()
    model[2].momentum = momentum
    loader = [(batch, torch.zeros(len(batch))) for batch in batches] if with_targets else batches
    refresh_batchnorm(model, loader)
    assert_exact(model, batches)
    assert model[2].momentum == momentum
    refresh_batchnorm(model, loader)
    assert_exact(model, batches)


def test_custom_forward():
    model, batches = randomise(network(), seed=1), ragged_batches()
    outputs = []

    def forward(model, batch):
        outputs.append(model(batch["features"]))

    refresh_batchnorm(model, [{"features": batch} for batch in batches], forward=forward)
    assert_exact(model, batches)
    assert not any(output.requires_grad for output in outputs)


@pytest.mark.parametrize("modes", [(True, True), (False, True), (True, False)])
def test_modes_parameters_and_random_state_are_unchanged(modes):
    model: Any = randomise(network(), seed=1)
    model.train(modes[0])
    model[2].train(modes[1])
    model[0].weight.requires_grad_(False)
    before, state = copy.deepcopy(model), torch.get_rng_state()
    refresh_batchnorm(model, ragged_batches())
    assert [m.training for m in model.modules()] == [m.training for m in before.modules()]
    assert torch.equal(torch.get_rng_state(), state)
    for now, then in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(now, then)
        assert now.requires_grad == then.requires_grad
        assert now.grad is None
    assert not torch.equal(model[2].running_mean, before[2].running_mean)


def failing_batches():
    yield from ragged_batches()
    raise RuntimeError("the disk is gone")


def test_modes_and_momentum_are_unchanged_after_an_error():
    model: Any = randomise(network(), seed=1)
    model[2].momentum = 0.3
    with pytest.raises(RuntimeError, match="the disk is gone"):
        refresh_batchnorm(model, failing_batches())
    assert all(module.training for module in model.modules())
    assert model[2].momentum == 0.3


@pytest.mark.parametrize(
    ("batches", "error"),
    [(list, ValueError), (failing_batches, RuntimeError)],
    ids=["none", "some"],
)
def test_statistics_are_unchanged_after_an_error(batches, error):
    model = randomise(network(), seed=1)
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(error, match=r"no batches|disk is gone"):
        refresh_batchnorm(model, batches())
    assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_data_are_not_read_without_batchnorm_layers():
    model = mlp()
    before = copy.deepcopy(model.state_dict())
    refresh_batchnorm(model, (pytest.fail("read") for _ in range(1)))
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    stateless = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False))
    refresh_batchnorm(stateless, [])


def test_layers_without_running_statistics():
    plain = nn.BatchNorm1d(4, track_running_stats=False)
    model = nn.Sequential(plain, nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2))
    batches = ragged_batches()
    refresh_batchnorm(model, batches)
    layer: Any = model[1]
    # What comes out of the first has mean 0 and variance n / (n - 1), but for its epsilon.
    assert_close(layer.running_mean, torch.zeros(4), rtol=0, atol=1e-5)
    variance = sum(len(batch) / 15 * len(batch) / (len(batch) - 1) for batch in batches)
    assert_close(layer.running_var, torch.full((4,), variance), rtol=1e-3, atol=0)
    assert plain.running_mean is None
    assert plain.momentum == layer.momentum == 0.1


def test_layer_used_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, inputs):
            return self.norm(inputs) + self.norm(inputs + 10)

    model, (batch, *_) = Twice(), ragged_batches()
    refresh_batchnorm(model, [batch])
    assert_close(model.norm.running_mean, batch.mean(0) + 5, **CLOSE)


def test_exhausted_generator_is_rejected():
    batches = iter(ragged_batches())
    refresh_batchnorm(network(), batches)
    with pytest.raises(ValueError, match="no batches"):
        refresh_batchnorm(network(), batches)
