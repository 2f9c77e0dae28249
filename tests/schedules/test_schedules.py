import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from csgmcmc import SGHMC, Constant, Cyclical, Decreasing, Joined, Keep, Ramp, Schedule, Tick
from csgmcmc.schedules.base import options_at


@settings(max_examples=500)
@given(
    steps=st.integers(1, 400),
    cycles=st.integers(1, 40),
    exploration=st.one_of(
        st.floats(0, 1, exclude_max=True), st.sampled_from([0.0, 0.25, 0.8, 0.94, 0.07, 1 / 3])
    ),
    draws_per_cycle=st.one_of(st.none(), st.integers(1, 20)),
    every=st.integers(1, 20),
    burn_in=st.integers(0, 420),
)
def test_cyclical_has_exactly_the_promised_draws_or_says_what_to_change(
    steps, cycles, exploration, draws_per_cycle, every, burn_in
):
    which: dict[str, Any] = {"draws_per_cycle": draws_per_cycle}
    if draws_per_cycle is None:
        which = {"keep": Keep(every=every)}
    length = math.ceil(steps / cycles)
    windows = [
        sum(step >= burn_in and (step % length) / length >= exploration for step in cycle)
        for cycle in (range(c, min(c + length, steps)) for c in range(0, steps, length))
        if cycle[-1] >= burn_in
    ]
    possible = math.ceil(steps / length) == cycles and windows
    if not possible or min(windows) < (draws_per_cycle or every):
        with pytest.raises(ValueError, match=r"cycles|exploration|burn_in|keep"):
            Cyclical(steps, cycles, exploration, burn_in=burn_in, **which)
        return
    schedule = Cyclical(steps, cycles, exploration, burn_in=burn_in, **which)
    ticks = [schedule(step) for step in range(steps)]
    for tick in ticks:  # the paper's equation and algorithm, written out again
        done = (tick.step % length) / length
        assert tick.cycle == tick.step // length
        assert tick.lr_scale == pytest.approx((math.cos(math.pi * done) + 1) / 2)
        assert tick.stage == ("explore" if done < exploration else "sample")
        assert tick.temperature_scale == (0.0 if done < exploration else 1.0)
        assert not (tick.collect and (tick.stage == "explore" or tick.step < burn_in))
    assert ticks[-1].cycle == cycles - 1
    for cycle in range(cycles):
        window = [t for t in ticks if t.cycle == cycle and t.stage == "sample"]
        window = [t.collect for t in window if t.step >= burn_in]
        kept = [place for place, collect in enumerate(window, start=1) if collect]
        if not window:
            assert (cycle + 1) * length <= burn_in
        elif draws_per_cycle is not None:
            assert len(kept) == draws_per_cycle
            assert kept[-1] == len(window)
            gaps = np.diff([0, *kept])
            assert gaps.max() - gaps.min() <= 1
        else:
            assert kept == list(range(every, len(window) + 1, every))
            assert kept
    assert schedule.total_draws == sum(tick.collect for tick in ticks)
    for name, column in schedule.table().items():
        assert column.tolist() == [getattr(tick, name) for tick in ticks]


@given(
    steps=st.integers(1, 300),
    burn_in=st.integers(0, 320),
    draws=st.one_of(st.none(), st.integers(1, 50)),
    every=st.integers(1, 50),
    kind=st.sampled_from([Constant, lambda steps, **kw: Decreasing(steps, gamma=0.6, **kw)]),
)
def test_constant_and_decreasing_have_exactly_the_promised_draws(
    steps, burn_in, draws, every, kind
):
    which = {"keep": Keep(every=every)} if draws is None else {"draws": draws}
    window = steps - burn_in
    if window < (draws or every):
        with pytest.raises(ValueError, match="steps"):
            kind(steps, burn_in=burn_in, **which)
        return
    schedule = kind(steps, burn_in=burn_in, **which)
    kept = [tick.step for tick in map(schedule, range(steps)) if tick.collect]
    if draws is None:
        assert kept == list(range(burn_in + every - 1, steps, every))
    else:
        assert len(kept) == draws
        assert kept[-1] == steps - 1
        assert kept[0] >= burn_in
        gaps = np.diff([burn_in - 1, *kept])
        assert gaps.max() - gaps.min() <= 1


def test_cyclical_stages_of_the_paper():
    """K=50k, M=30, beta=1/4: cycles of 1,667 steps, the last of them 10 steps short."""
    schedule = Cyclical(50_000, cycles=30, exploration=0.25, keep=Keep(every=1))
    table = schedule.table()
    assert schedule.cycle_length == 1667
    assert (table["stage"][:417] == "explore").all()
    assert (table["stage"][417:1667] == "sample").all()
    assert table["lr_scale"][1667] == 1.0
    assert schedule.total_draws == 30 * 1250 - 10 == table["collect"].sum()


def test_cyclical_exploration_zero_always_samples():
    schedule = Cyclical(100, cycles=4, exploration=0, keep=Keep(every=1))
    assert schedule.total_draws == 100
    assert (schedule.table()["temperature_scale"] == 1).all()


@given(
    steps=st.integers(20, 300),
    cycles=st.integers(1, 6),
    every=st.integers(1, 7),
    restart=st.one_of(st.just("fresh"), st.floats(0.01, 0.99)),
)
def test_restarts_are_before_every_nth_cycle_but_the_first(steps, cycles, every, restart):
    assume(math.ceil(steps / math.ceil(steps / cycles)) == cycles)
    keep = Keep(every=1)
    try:
        schedule = Cyclical(steps, cycles, keep=keep, restart=restart, restart_every=every)
    except ValueError:  # the last cycle is too short to sample
        assume(False)
    rho, before = 0.0 if restart == "fresh" else restart, 0
    for tick in map(schedule, range(steps)):
        begins = tick.cycle > before and tick.cycle % every == 0
        assert tick.restart == (rho if begins else 1.0)
        before = tick.cycle
    plain = Cyclical(steps, cycles, keep=keep)
    columns = zip(schedule.table().items(), plain.table().items(), strict=True)
    assert all(name == "restart" or (ours == its).all() for (name, ours), (_, its) in columns)
    assert (plain.table()["restart"] == 1).all()


def test_hot_exploration_and_annealing():
    hot = Cyclical(
        20, cycles=2, exploration=0.5, keep=Keep(every=1), exploration_temperature=10
    ).table()
    assert list(hot["temperature_scale"][:10]) == [10] * 5 + [1] * 5
    annealed = Cyclical(20, cycles=2, exploration=0.5, keep=Keep(every=1), anneal=True).table()
    assert list(annealed["temperature_scale"][:10]) == pytest.approx(
        [0, 0.2, 0.4, 0.6, 0.8] + [1] * 5
    )
    cooling = Cyclical(
        8, 1, 0.5, keep=Keep(every=1), exploration_temperature=5, anneal=True
    ).table()
    assert list(cooling["temperature_scale"]) == pytest.approx([5, 4, 3, 2, 1, 1, 1, 1])


def test_cyclical_burn_in_inside_a_cycle_spreads_what_is_left():
    schedule = Cyclical(40, cycles=2, exploration=0.5, draws_per_cycle=2, burn_in=16)
    kept = [tick.step for tick in map(schedule, range(40)) if tick.collect]
    assert kept == [17, 19, 34, 39]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Cyclical(9, cycles=4, keep=Keep(every=1)),
            ["3 cycles", "cycles=4", "multiple of cycles"],
        ),
        (lambda: Cyclical(100, cycles=4, exploration=0.9, draws_per_cycle=3), ["cycle 1", "2"]),
        (lambda: Cyclical(100, 4, 0.8, draws_per_cycle=3, burn_in=24), ["burn_in=24"]),
        (lambda: Cyclical(100, 4, 0.8, keep=Keep(every=6)), ["every=6", "lower exploration"]),
        (lambda: Cyclical(100, 4, 0.8, keep=Keep(every=1), burn_in=100), ["burn_in=100"]),
        (lambda: Cyclical(101, 4, 0.8, draws_per_cycle=3), ["cycle 4"]),
        (lambda: Cyclical(100, 4), ["draws_per_cycle or keep"]),
        (lambda: Cyclical(100, 4, draws_per_cycle=1, restart="warm"), ["restart", "'warm'"]),  # pyright: ignore[reportArgumentType]
        (lambda: Cyclical(100, 4, draws_per_cycle=1, restart=1.0), ["restart must", "below 1"]),
        (lambda: Cyclical(100, 4, draws_per_cycle=1, restart=0), ["restart must", "above 0"]),
        (lambda: Cyclical(100, 4, draws_per_cycle=1, restart_every=2), ['restart="fresh"']),
        (
            lambda: Cyclical(100, 4, draws_per_cycle=1, restart="fresh", restart_every=0),
            ["restart_every must be at least 1"],
        ),
        (lambda: Cyclical(100, 4, draws_per_cycle=1, keep=Keep(every=1)), ["not both"]),
        (lambda: Cyclical(100, 4, 1.0, keep=Keep(every=1)), ["exploration must", "below 1", "1.0"]),
        (
            lambda: Cyclical(100, 4, float("nan"), keep=Keep(every=1)),
            ["exploration must be finite", "nan"],
        ),
        (
            lambda: Cyclical(100, 4, keep=Keep(every=1), exploration_temperature=-1),
            ["exploration_temp"],
        ),
        (lambda: Cyclical(0, 1, keep=Keep(every=1)), ["steps must be at least 1, got 0"]),
        (lambda: Cyclical(2.5, 1, keep=Keep(every=1)), ["steps must be a whole number, got 2.5"]),  # pyright: ignore[reportArgumentType]
        (lambda: Cyclical(10, 0, keep=Keep(every=1)), ["cycles must be at least 1, got 0"]),
        (lambda: Cyclical(10, 1, keep=Keep(every=0)), ["every must be at least 1, got 0"]),
        (lambda: Decreasing(10, gamma=0.5, keep=Keep(every=1)), ["gamma must be above 0.5", "0.5"]),
        (lambda: Decreasing(10, gamma=1.1, keep=Keep(every=1)), ["gamma", "at most 1"]),
        (
            lambda: Decreasing(10, gamma=0.6, b=-1, keep=Keep(every=1)),
            ["b must be at least 0, got -1"],
        ),
        (lambda: Decreasing(10, gamma=0.6), ["draws or keep"]),
        (
            lambda: Decreasing(10, gamma=0.6, burn_in=10, keep=Keep(every=1)),
            ["burn_in=10", "steps=10"],
        ),
        (
            lambda: Decreasing(10, gamma=0.6, burn_in=8, draws=3),
            ["2 sampling steps", "per_cycle=3"],
        ),
        (lambda: Constant(10, draws=11), ["per_cycle=11"]),
        (lambda: Constant(10, lr_scale=-1), ["lr_scale must be at least 0, got -1"]),
        (lambda: Ramp(10, start=0, end=1, shape="exponential"), ["start must be above 0"]),
        (lambda: Ramp(10, start=0, end=1, shape="square"), ["shape", "'square'"]),  # pyright: ignore[reportArgumentType]
        (lambda: Joined([]), ["at least one"]),
    ],
)
def test_bad_arguments_say_which_number_to_change(make, words):
    with pytest.raises(ValueError, match=r".") as error:
        make()
    for word in words:
        assert word in str(error.value)


@given(gamma=st.floats(0.51, 1), b=st.floats(0, 100), burn_in=st.integers(0, 20))
def test_decreasing_is_the_polynomial_with_k_from_1_after_burn_in(gamma, b, burn_in):
    schedule = Decreasing(60, gamma, b, burn_in, keep=Keep(every=1), burn_in_temperature=0)
    for step in range(60):
        tick = schedule(step)
        if step < burn_in:
            assert (tick.lr_scale, tick.temperature_scale) == (1.0, 0.0)
        else:
            assert tick.lr_scale == pytest.approx((b + step - burn_in + 1) ** -gamma)
            assert tick.temperature_scale == 1.0


def test_decreasing_has_noise_from_the_start_by_default():
    assert (
        Decreasing(20, 0.6, burn_in=5, keep=Keep(every=1)).table()["temperature_scale"] == 1
    ).all()


@given(
    shape=st.sampled_from(["linear", "cosine", "exponential"]),
    start=st.floats(0.001, 10),
    end=st.floats(0.001, 10),
    steps=st.integers(2, 50),
)
def test_ramp_goes_from_start_to_end_in_one_direction(shape, start, end, steps):
    scales = Ramp(steps, start, end, shape).table()["lr_scale"]
    assert scales[0] == pytest.approx(start)
    assert scales[-1] == pytest.approx(end)
    moves = np.diff(scales) * np.sign(end - start)
    assert (moves >= -1e-9).all()


def test_ramp_shapes_at_the_middle():
    middles = {
        shape: Ramp(3, start=1, end=0.01, shape=shape)(1).lr_scale
        for shape in ("linear", "cosine", "exponential")
    }
    assert middles == pytest.approx({"linear": 0.505, "cosine": 0.505, "exponential": 0.1})
    assert Ramp(5, start=1, end=0, shape="cosine")(1).lr_scale == pytest.approx(
        (1 + math.cos(math.pi / 4)) / 2
    )


def test_joined_gives_the_papers_baseline():
    """0.1 to 0.001 over 150 epochs without noise, then decay from 0.01 with noise."""
    epoch = 10
    schedule = Joined(
        [
            Ramp(150 * epoch, start=1, end=0.01, shape="exponential"),
            Decreasing(50 * epoch, gamma=0.5005, lr_scale=0.1, draws=20),
        ]
    )
    sampler = SGHMC([torch.zeros(1)], lr=0.1, num_data=50_000)
    lr = []
    for step in range(schedule.steps):
        tick = schedule.apply(sampler, step)
        lr.append(sampler.param_groups[0]["lr"])
        assert (tick.temperature_scale == 0) == (step < 150 * epoch)
    assert schedule.total_draws == 20
    assert lr[0] == pytest.approx(0.1)
    assert lr[1499] == pytest.approx(0.001)
    assert lr[1500] == pytest.approx(0.01)
    assert lr[-1] == pytest.approx(0.01 * 500**-0.5005)


@given(parts=st.lists(st.integers(1, 30), min_size=1, max_size=5))
def test_joined_is_its_parts_one_after_another(parts):
    schedules = [Cyclical(n, cycles=1, exploration=0.3, keep=Keep(every=1)) for n in parts if n > 2]
    assume(schedules)
    joined = Joined(schedules).table()
    for name in ("stage", "lr_scale", "temperature_scale", "collect"):
        expected = np.concatenate([schedule.table()[name] for schedule in schedules])
        assert (joined[name] == expected).all()
    assert joined["cycle"][-1] == len(schedules) - 1


@pytest.mark.parametrize("capturable", [False, True])
def test_apply_works_on_any_torch_optimizer(capturable):
    lr = torch.tensor(0.5) if capturable else 0.5
    optimizer = torch.optim.Adam([torch.zeros(1)], lr=lr, capturable=capturable)
    schedule = Cyclical(10, cycles=1, exploration=0.5, keep=Keep(every=1))
    for step in (3, 7, 0):
        tick = schedule.apply(optimizer, step)
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.5 * tick.lr_scale)
        assert "temperature" not in optimizer.param_groups[0]
    assert (optimizer.param_groups[0]["lr"] is lr) == capturable


def test_apply_scales_a_shared_lr_tensor_once():
    groups = [{"params": [torch.zeros(1)]}, {"params": [torch.zeros(1)]}]
    optimizer = torch.optim.Adam(groups, lr=torch.tensor(0.5), capturable=True)
    for _ in range(3):
        Constant(9, lr_scale=0.5).apply(optimizer, 0)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.25, 0.25]


def test_apply_after_a_load_scales_the_initial_numbers():
    schedule = Cyclical(10, cycles=1, exploration=0.5, keep=Keep(every=1))
    first = SGHMC([torch.zeros(1)], lr=0.3, num_data=2, temperature=0.5)
    schedule.apply(first, 9)
    second = SGHMC([torch.zeros(1)], lr=7.0, num_data=2)
    second.load_state_dict(first.state_dict())
    schedule.apply(second, 0)
    assert second.param_groups[0]["lr"] == pytest.approx(0.3)
    schedule.apply(second, 8)
    assert second.param_groups[0]["temperature"] == pytest.approx(0.5)


def test_apply_raises_for_an_optimizer_without_lr():
    class Bare(torch.optim.Optimizer):
        def __init__(self):
            super().__init__([torch.zeros(1)], {})

    with pytest.raises(ValueError, match="Bare has no lr"):
        Constant(3).apply(Bare(), 0)


def test_options_at_leaves_the_group_as_it_is():
    tick = Cyclical(10, cycles=1, exploration=0.5, keep=Keep(every=1))(7)
    group = {"lr": 5.0, "initial_lr": 0.2, "temperature": 9.0, "initial_temperature": 3.0, "b": 1}
    before = dict(group)
    expected = {**group, "lr": 0.2 * tick.lr_scale, "temperature": 3.0}
    assert options_at(group, tick) == expected
    assert group == before
    # Where nothing is recorded, the current values are the initial ones.
    assert options_at({"lr": 0.5}, tick) == {"lr": 0.5 * tick.lr_scale}


def test_a_schedule_of_ones_own_needs_one_method():
    @dataclass(frozen=True)
    class EveryOther(Schedule):
        steps: int

        def tick(self, step: int) -> Tick:
            return Tick(step, 0, "sample", 1.0, 1.0, collect=step % 2 == 1)

    schedule = EveryOther(9)
    assert schedule.total_draws == 4
    assert schedule.total_cycles == 1
    assert schedule.table()["collect"].sum() == 4
    with pytest.raises(ValueError, match="step 9 is past the schedule's end"):
        schedule(9)
