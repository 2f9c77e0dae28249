"""Schedules refuse bad input in a sentence, keep plain values, and have no size of their own."""

# Wrong types are given on purpose.
# pyright: reportArgumentType=false

import numpy as np
import pytest

from csgmcmc import Constant, Cyclical, Decreasing, Joined, Keep, Ramp

DRAWS = {"draws_per_cycle": 1}


@pytest.mark.parametrize("value", ["100", 10.0, None, 10**30, np.array([1, 2]), 2**53])
@pytest.mark.parametrize(
    "make",
    [
        Constant,
        lambda steps: Cyclical(steps, 2, **DRAWS),
        lambda steps: Decreasing(steps, gamma=0.6, keep=Keep(every=1)),
        lambda steps: Ramp(steps, 0, 1),
    ],
)
def test_steps_are_a_whole_number_that_can_be_counted(make, value):
    with pytest.raises(ValueError, match=r"^steps must be .*got"):
        make(value)


@pytest.mark.parametrize("value", ["ab", 5, [1, "2"], [1, float("inf")], [1, None]])
@pytest.mark.parametrize("name", ["weight_decay_scales", "temperature_scales"])
def test_scales_of_cycles_are_numbers(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be .*got"):
        Cyclical(20, 2, **DRAWS, **{name: value})


@pytest.mark.parametrize("value", [5, None, "ab", []])
def test_what_is_joined_are_schedules(value):
    with pytest.raises(ValueError, match="schedules must"):
        Joined(value)


def test_what_is_accepted_becomes_a_plain_value():
    options = {"exploration": np.float64(0.5), "exploration_temperature": np.float32(0.25)}
    made = Cyclical(np.int64(20), np.int32(2), keep=Keep(every=np.int8(2)), **options)
    plain = {"exploration": 0.5, "exploration_temperature": 0.25}
    assert repr(made) == repr(Cyclical(20, 2, keep=Keep(every=2), **plain))
    assert repr(Ramp(np.int64(3), np.float32(0.5), 1)) == repr(Ramp(3, 0.5, 1))
