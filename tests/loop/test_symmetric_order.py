"""Minibatches in symmetric order: there and back, resumable, and with less bias.

The bias is compared with the exact law: on a Gaussian whose minibatches are known, a sweep is an
affine map with Gaussian noise.
"""

import math

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGLD, Constant, Stepper
from csgmcmc.errors import SettingsMismatchError

CENTRES = torch.tensor([-2.0, 1.0, 4.0, 0.5, -1.0, 3.5])
BATCH, NUM_DATA, LR, CHAINS = 2, 6, 0.3, 20_000


class Points(torch.nn.Module):
    """Many positions at once, each a chain of its own: their noise is independent."""

    def __init__(self, chains=1):
        super().__init__()
        self.theta = torch.nn.Parameter(torch.zeros(chains))


def make_loader(shuffle=True, batch=BATCH):
    data = TensorDataset(CENTRES)
    generator = torch.Generator().manual_seed(0)
    return DataLoader(data, batch, shuffle=shuffle, generator=generator)


def make_stepper(steps, chains=1):
    model = Points(chains)
    sampler = SGLD(model.parameters(), LR, num_data=NUM_DATA, seed=0)
    return Stepper(model, sampler, Constant(steps, draws=1)), model, sampler


def walk(stepper, model, sampler, loader, order, stop=None):
    """The batches seen, up to `stop` steps taken."""
    seen = []
    for (batch,) in stepper.batches(loader, order=order):
        seen.append(batch.tolist())
        sampler.zero_grad()
        (0.5 * (model.theta[:, None] - batch) ** 2).mean(1).sum().backward()
        stepper.step()
        if stepper.taken == stop:
            break
    return seen


def test_each_epoch_goes_there_and_back():
    seen = walk(*make_stepper(18), make_loader(), "symmetric")
    for start in (0, 6, 12):
        there, back = seen[start : start + 3], seen[start + 3 : start + 6]
        assert back == there[::-1]
        assert sorted(point for batch in there for point in batch) == sorted(CENTRES.tolist())
    assert seen[:3] != seen[6:9]  # shuffled anew
    assert walk(*make_stepper(6), make_loader(), "loader")[3:] != seen[3:6]


@pytest.mark.parametrize("stop", range(1, 12))
def test_it_resumes_anywhere(stop):
    whole = walk(*(parts := make_stepper(12)), make_loader(), "symmetric")
    first, model, sampler = make_stepper(12)
    seen = walk(first, model, sampler, make_loader(), "symmetric", stop)
    state = first.state_dict()
    second, model, sampler = make_stepper(12)
    second.load_state_dict(state)
    seen += walk(second, model, sampler, make_loader(), "symmetric")
    assert seen == whole
    assert torch.equal(model.theta, parts[1].theta)


def test_another_order_cannot_resume_it():
    stepper, model, sampler = make_stepper(12)
    walk(stepper, model, sampler, make_loader(), "symmetric", 4)
    other, *_ = make_stepper(12)
    other.load_state_dict(stepper.state_dict())
    with pytest.raises(SettingsMismatchError, match="order"):
        next(iter(other.batches(make_loader())))
    with pytest.raises(ValueError, match="order must be one of 'loader', 'symmetric'"):
        next(iter(other.batches(make_loader(), order="backward")))


def law(order, sweeps):
    """Mean and variance after `sweeps` of fixed minibatches in turn, exactly."""
    means = CENTRES.view(-1, BATCH).mean(1).tolist()
    path = means if order == "loader" else [*means, *means[::-1]]
    mean, variance = 0.0, 0.0
    for step in range(sweeps * len(means)):
        mean = (1 - LR) * mean + LR * path[step % len(path)]
        variance = (1 - LR) ** 2 * variance + 2 * LR / NUM_DATA
    return mean, variance


@pytest.mark.parametrize("order", ["loader", "symmetric"])
def test_the_exact_law(order):
    """20,000 chains: mean and variance within 4 standard errors, false alarms once in 8,000."""
    sweeps = 12
    stepper, model, sampler = make_stepper(3 * sweeps, CHAINS)
    walk(stepper, model, sampler, make_loader(shuffle=False), order)
    found, (mean, variance) = model.theta.detach().double(), law(order, sweeps)
    assert abs(float(found.mean()) - mean) < 4 * math.sqrt(variance / CHAINS)
    assert abs(float(found.var()) / variance - 1) < 4 * math.sqrt(2 / CHAINS)


def test_the_bias_of_the_mean_is_of_second_order():
    """Halving the step size halves the bias of sweeps in one direction, and quarters it here."""

    def bias(lr, order):
        means = CENTRES.view(-1, BATCH).mean(1).double()
        path = means if order == "loader" else torch.cat([means, means.flip(0)])
        kept = (1 - lr) ** torch.arange(len(path) - 1, -1, -1).double()
        return abs(float((lr * kept * path).sum() / (1 - (1 - lr) ** len(path)) - CENTRES.mean()))

    for order, factor in (("loader", 2.0), ("symmetric", 4.0)):
        assert bias(0.01, order) / bias(0.005, order) == pytest.approx(factor, rel=0.05)
