"""A step without torch's wrapper calls everything that somebody has put around it."""

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from csgmcmc import SGHMC, SGLD
from csgmcmc.stepper.plain_step import take_step


def make_sampler(kind: Any = SGHMC, **options: Any) -> Any:
    param = nn.Parameter(torch.ones(3))
    param.grad = torch.ones(3)
    return kind([param], lr=0.1, **options)


def weights(sampler) -> torch.Tensor:
    return sampler.param_groups[0]["params"][0].detach().clone()


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_sampler(num_data=10, seed=1),
        lambda: make_sampler(SGLD, num_data=10, seed=1),
        lambda: make_sampler(torch.optim.SGD, momentum=0.9),
        lambda: make_sampler(torch.optim.Adam),
    ],
)
def test_it_is_the_optimizers_step(make):
    ours, theirs = make(), make()
    for _ in range(3):
        take_step(ours)
        theirs.step()
    assert torch.equal(weights(ours), weights(theirs))


def test_hooks_of_the_sampler_are_called_and_may_come_and_go():
    sampler, seen = make_sampler(num_data=10), []
    before = sampler.register_step_pre_hook(lambda *_: seen.append("before"))
    take_step(sampler)
    before.remove()
    take_step(sampler)
    sampler.register_step_post_hook(lambda *_: seen.append("after"))
    take_step(sampler)
    assert seen == ["before", "after"]


def test_hooks_of_all_optimizers_are_called():
    sampler, seen = make_sampler(num_data=10), []
    handles = [
        register_optimizer_step_pre_hook(lambda *_: seen.append("before")),
        register_optimizer_step_post_hook(lambda *_: seen.append("after")),
    ]
    try:
        take_step(sampler)
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["before", "after"]


@pytest.mark.filterwarnings("ignore")  # torch's own, about the profiler
def test_the_profiler_sees_the_step():
    sampler = make_sampler(num_data=10)
    with torch.profiler.profile() as profile:
        take_step(sampler)
    assert "Optimizer.step#SGHMC.step" in {event.key for event in profile.key_averages()}


def test_a_step_set_on_the_object_is_called():
    sampler, seen = make_sampler(num_data=10), []
    torch.optim.lr_scheduler.StepLR(sampler, 5)  # which does that too
    scheduled = sampler.step

    @functools.wraps(scheduled)
    def spy(*args, **kwargs):
        seen.append("object")
        return scheduled(*args, **kwargs)

    sampler.step = spy
    take_step(sampler)
    assert seen == ["object"]


def test_a_step_set_on_the_class_is_called(monkeypatch):
    sampler, seen = make_sampler(num_data=10), []
    original = SGHMC.step

    @functools.wraps(original)  # which copies the attributes by which torch knows its wrapper
    def spy(*args, **kwargs):
        seen.append("class")
        return original(*args, **kwargs)

    monkeypatch.setattr(SGHMC, "step", spy)
    take_step(sampler)
    assert seen == ["class"]


def test_a_subclass_of_a_subclass_is_called_once():
    seen = []

    class Counted(SGHMC):
        def step(self, closure=None):
            seen.append("own")
            return super().step(closure)

    take_step(make_sampler(Counted, num_data=10))
    assert seen == ["own"]
