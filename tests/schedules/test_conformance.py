"""Every discovered schedule is a pure function of the step, with the draws it promises."""

import copy
import pickle

import numpy as np
import pytest
import torch

from csgmcmc import SGHMC, Tick
from csgmcmc.schedules import Schedule, discover
from csgmcmc.schedules.base import options_at
from tests.schedules.registry import REGISTRY

EXAMPLES = [
    pytest.param(example, id=f"{name}-{index}")
    for name, examples in REGISTRY.items()
    for index, example in enumerate(examples)
]
every_example = pytest.mark.parametrize("schedule", EXAMPLES)


def check_entries(discovered: dict[str, type[Schedule]]) -> None:
    missing, stale = discovered.keys() - REGISTRY.keys(), REGISTRY.keys() - discovered.keys()
    assert not missing, (
        f"no examples of {', '.join(sorted(missing))}: add some to REGISTRY in "
        "tests/schedules/registry.py, so that the conformance tests can run on them"
    )
    assert not stale, f"tests/schedules/registry.py has an entry for {stale}, which does not exist"
    for name, examples in REGISTRY.items():
        assert examples
        assert all(type(example) is discovered[name] for example in examples)


def test_every_schedule_has_examples():
    check_entries(discover())


def test_a_schedule_without_examples_fails_with_a_sentence():
    with pytest.raises(AssertionError, match="no examples of Mine: add some to REGISTRY"):
        check_entries({**discover(), "Mine": Schedule})


@every_example
def test_ticks_are_sound_and_pure(schedule):
    forward = [schedule(step) for step in range(schedule.steps)]
    backward = [schedule(step) for step in reversed(range(schedule.steps))]
    assert forward == backward[::-1]
    for step, tick in enumerate(forward):
        assert isinstance(tick, Tick)
        assert tick.step == step
        assert tick.lr_scale >= 0
        assert tick.temperature_scale >= 0
        assert tick.weight_decay_scale >= 0
        assert tick.stage in ("burn-in", "explore", "sample")
        assert tick.stage == "sample" or not tick.collect
        assert 0 <= tick.restart <= 1
    assert forward[0].restart == 1
    assert schedule.restarts == any(tick.restart < 1 for tick in forward)
    cycles = [tick.cycle for tick in forward]
    assert cycles == sorted(cycles)
    assert set(cycles) == set(range(schedule.total_cycles))


@every_example
def test_total_draws_is_the_number_of_draws_collected(schedule):
    collected = sum(schedule(step).collect for step in range(schedule.steps))
    assert collected == schedule.total_draws
    assert Schedule.total_draws.fget(schedule) == collected  # pyright: ignore[reportOptionalCall]


@every_example
def test_table_holds_every_tick(schedule):
    table = schedule.table()
    assert set(table) == set(Tick.__dataclass_fields__)
    for step in range(schedule.steps):
        assert {name: column[step] for name, column in table.items()} == {
            name: getattr(schedule(step), name) for name in table
        }
    assert table["lr_scale"].dtype == np.float64
    assert table["collect"].dtype == np.bool_


@every_example
def test_steps_out_of_range_raise(schedule):
    for step in (-1, schedule.steps, schedule.steps + 7, 0.5):
        with pytest.raises(ValueError, match="step"):
            schedule(step)


@every_example
def test_it_is_a_value(schedule):
    assert copy.deepcopy(schedule) == schedule == pickle.loads(pickle.dumps(schedule))
    assert hash(schedule) == hash(copy.deepcopy(schedule))
    assert type(schedule).__name__ in repr(schedule)
    with pytest.raises(AttributeError):
        schedule.steps = 3


@every_example
def test_apply_scales_the_initial_options(schedule):
    groups = [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "temperature": 0.25}]
    sampler = SGHMC(groups, lr=0.2, num_data=5, weight_decay=0.3)
    for step in (schedule.steps - 1, 0, schedule.steps // 2, schedule.steps // 2):
        expected = [options_at(group, schedule(step)) for group in sampler.param_groups]
        tick = schedule.apply(sampler, step)
        assert tick == schedule(step)
        assert sampler.param_groups == expected
        first, second = sampler.param_groups
        assert first["lr"] == second["lr"] == pytest.approx(0.2 * tick.lr_scale)
        assert first["temperature"] == pytest.approx(tick.temperature_scale)
        assert second["temperature"] == pytest.approx(0.25 * tick.temperature_scale)
