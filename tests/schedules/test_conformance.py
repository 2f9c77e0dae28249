"""Every schedule, discovered, is a pure function of the step with the draws that it promises."""

import copy
import pickle

import numpy as np
import pytest
import torch

from csgmcmc import SGHMC, Tick
from csgmcmc.schedules import discover

EXAMPLES = [
    pytest.param(example, id=f"{name}-{index}")
    for name, schedule in discover().items()
    for index, example in enumerate(schedule.examples())
]
every_example = pytest.mark.parametrize("schedule", EXAMPLES)


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
        assert tick.stage in ("burn-in", "explore", "sample")
        assert tick.stage == "sample" or not tick.collect
    cycles = [tick.cycle for tick in forward]
    assert cycles == sorted(cycles)
    assert set(cycles) == set(range(schedule.total_cycles))


@every_example
def test_promised_draws_are_collected(schedule):
    assert sum(schedule(step).collect for step in range(schedule.steps)) == schedule.total_draws


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
def test_steps_outside_are_refused(schedule):
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
def test_apply_scales_what_the_sampler_was_given(schedule):
    groups = [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)], "temperature": 0.25}]
    sampler = SGHMC(groups, lr=0.2, num_data=5)
    for step in (schedule.steps - 1, 0, schedule.steps // 2, schedule.steps // 2):
        tick = schedule.apply(sampler, step)
        assert tick == schedule(step)
        first, second = sampler.param_groups
        assert first["lr"] == second["lr"] == pytest.approx(0.2 * tick.lr_scale)
        assert first["temperature"] == pytest.approx(tick.temperature_scale)
        assert second["temperature"] == pytest.approx(0.25 * tick.temperature_scale)
