"""A user's sampler outside the package: a constructor and one update are all that it needs."""

import math

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGLD, Chain, Constant, Cyclical, DrawStore, MemoryDraws, Posterior, Sampler
from tests.support import HESSIAN, MODE, assert_moments, eigen_covariance, make

LR, NUM_DATA = 0.3, 4.0


class OverlappingSGLD(Sampler):
    """SGLD whose noise overlaps with that of the step before (Leimkuhler and Matthews 2013).

    theta <- theta - lr * grad + sqrt(2 * lr * T / N) * ((1 - overlap) * eps + overlap * eps_before)

    With overlap 1/2 the variance on a Gaussian is right at any stable lr; with 0 it is SGLD.
    """

    def __init__(self, params, lr, *, num_data, overlap=0.5, **common):
        super().__init__(params, lr, num_data=num_data, options={"overlap": overlap}, **common)

    def update(self, group, params, gradients, noise, states):
        lr, overlap = group["lr"], group["overlap"]
        std = math.sqrt(2 * lr * group["temperature"] / group["num_data"])
        for index, before in enumerate(states("noise_before")):
            params[index].add_(gradients[index], alpha=-lr)
            if noise is not None:
                params[index].add_(noise[index], alpha=(1 - overlap) * std)
                params[index].add_(before, alpha=overlap * std)
                before.copy_(noise[index])


def test_in_a_hand_loop_it_has_the_variance_of_the_posterior():
    """At a step size where that of SGLD is more than 10% too large."""
    points = MODE + torch.zeros(20_000, 2, dtype=torch.float64)
    sampler = make(OverlappingSGLD, [points], lr=2 * LR, num_data=NUM_DATA)
    schedule = Constant(200, lr_scale=0.5)
    for step in range(schedule.steps):
        schedule.apply(sampler, step)
        points.grad = (points - MODE) @ HESSIAN
        sampler.step()
    settings = {"lr": LR, "num_data": NUM_DATA}
    posterior = eigen_covariance(lambda c: OverlappingSGLD.stationary_variance(c, **settings))
    torch.testing.assert_close(posterior, torch.linalg.inv(HESSIAN) / NUM_DATA)
    assert_moments(points, posterior)
    discrete = eigen_covariance(lambda c: SGLD.stationary_variance(c, **settings))
    assert (discrete.diagonal() > 1.1 * posterior.diagonal()).all()


def test_without_overlap_it_is_sgld():
    one, other = torch.ones(50), torch.ones(50)
    samplers = make(OverlappingSGLD, [one], overlap=0.0), make(SGLD, [other])
    for _ in range(5):
        one.grad, other.grad = one.clone(), other.clone()
        for sampler in samplers:
            sampler.step()
    torch.testing.assert_close(one, other)


class Stopped(Exception):  # noqa: N818
    pass


def make_chain(draws, stop_after: int | None = None, **options) -> Chain:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    inputs = torch.randn(40, 3)
    data = TensorDataset(inputs, inputs.sum(1).gt(0).long())
    loader = DataLoader(data, 10, shuffle=True, generator=torch.Generator().manual_seed(1))
    losses = 0

    def loss(outputs, labels):
        nonlocal losses
        losses += 1
        if stop_after is not None and losses > stop_after:
            raise Stopped
        return torch.nn.functional.cross_entropy(outputs, labels)

    sampler = make(OverlappingSGLD, model.parameters(), num_data=40, weight_decay=0.01, **options)
    schedule = Cyclical(400, cycles=4, exploration=0.5, draws_per_cycle=3)
    return Chain(model, loss, loader, sampler, schedule, draws, progress=False)


@pytest.mark.parametrize("stop_after", [1, 137, 399])
def test_in_a_chain_with_a_store_it_resumes_bit_for_bit(tmp_path, stop_after):
    whole = make_chain(DrawStore(tmp_path / "whole")).run()
    with pytest.raises(Stopped):
        make_chain(DrawStore(tmp_path / "stopped"), stop_after).run()
    resumed = make_chain(DrawStore(tmp_path / "stopped")).run(resume=True)
    assert len(whole) == len(resumed) == 12
    for one, other in zip(whole, resumed, strict=True):
        assert one.step == other.step
        tensors = other.tensors()
        assert all(torch.equal(value, tensors[name]) for name, value in one.tensors().items())


def test_its_own_options_are_part_of_the_settings_of_a_run(tmp_path):
    make_chain(DrawStore(tmp_path)).run()
    with pytest.raises(ValueError, match=r"groups\.0\.overlap was 0\.5 .* is 0\.25"):
        make_chain(DrawStore(tmp_path), overlap=0.25).run(resume=True)


def test_checks_say_that_undeclared_noise_is_unknown():
    chain = make_chain(MemoryDraws())
    group = chain.sampler.param_groups[0]
    assert isinstance(chain.sampler, Sampler)
    assert chain.sampler.injected_variance(group, group["params"][0]) is None
    draws = chain.run()  # which warns of nothing: warnings are errors in tests
    inputs = torch.randn(30, 3)
    batches = [(inputs, inputs.sum(1).gt(0).long())]
    found = Posterior(chain.model, draws).check(batches, run=chain)
    assert found.sampling.holds is None
    assert "OverlappingSGLD does not declare its injected_variance" in str(found)


def test_its_noise_and_state_are_those_of_every_sampler():
    """Nothing at temperature 0, and a state that can be saved."""
    point = torch.ones(4)
    sampler = make(OverlappingSGLD, [point], temperature=0.0)
    point.grad = torch.ones(4)
    sampler.step()
    torch.testing.assert_close(point, torch.full((4,), 0.9))
    assert (sampler.state_dict()["state"][0]["noise_before"] == 0).all()
    with pytest.raises(TypeError, match="unexpected keyword argument 'overlp'"):
        make(OverlappingSGLD, [point], overlp=0.5)
