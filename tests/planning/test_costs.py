"""The cost model beside examples by hand, and what must hold for all runs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csgmcmc.planning import (
    Layout,
    Machine,
    Sizes,
    Step,
    Work,
    advise,
    cost_of,
    make_layout,
    wire_bytes,
)
from csgmcmc.planning.advice import readable_time

SIZES = Sizes(weights=400.0, trained=400.0, layer=100.0, draw=400.0, rest=1000.0)
MACHINE = Machine(
    Step(batch=1.0, update=0.2, noise=0.4),
    Step(batch=1.5, update=0.3, noise=0.6),
    draw_seconds=2.0,
    checkpoint_seconds=3.0,
    predict_seconds=0.5,
    bandwidth=200.0,
    latency=0.25,
    crowding=1.2,
    lockstep=1.3,
    cores=2,
)
WORK = Work(steps=1000, draws=20, noisy=0.5)


def total(parts):
    return sum(parts.values())


def test_one_chain_on_one_process_by_hand():
    costs = cost_of(SIZES, MACHINE, make_layout(), WORK)
    assert costs.step_seconds == pytest.approx(1.0 + 0.2 + 0.5 * 0.4)
    # 101 checkpoints: one at the start, then every 10 of 1000 steps; 20 draws are not rare.
    assert total(costs.seconds) == pytest.approx(1000 * 1.4 + 20 * 2 + 101 * 3)
    assert total(costs.memory) == 1000 + 4 * 400  # weights, gradients and a copy, velocities
    assert costs.resume_memory == 1000 + 3 * 800
    assert total(costs.disk) - costs.disk["logs"] == 20 * 400 + 2 * 800
    assert costs.wire == costs.wire_total == 0
    assert costs.predict_seconds == 20 * 0.5


def test_two_processes_by_hand():
    costs = cost_of(SIZES, MACHINE, make_layout(2, 1), WORK)
    # A ring of two sends all gradients once; one bucket.
    assert costs.wire == 2 * 0.5 * 400
    assert costs.wire_total == 1000 * 2 * 400
    assert costs.step_seconds == pytest.approx(1.3 * (1.5 + 0.3 + 0.3) + 0.25 + 400 / 200)
    assert total(costs.memory) == 1000 + 5 * 400  # and buckets
    assert costs.seconds["checkpoints"] == 101 * (3 + 4 * 0.25)
    # Two chains send nothing, and do not wait for each other.
    chains = cost_of(SIZES, MACHINE, make_layout(2), WORK)
    assert chains.step_seconds == pytest.approx(1.2 * (1.5 + 0.3 + 0.3))
    assert chains.seconds["checkpoints"] == 101 * 3


def test_four_processes_wait_for_two_cores():
    costs = cost_of(SIZES, MACHINE, make_layout(4, 1), replace(WORK, batch_share=0.25))
    computing = 2 * 1.3 * (0.25 * 1.5 + 0.3 + 0.3)
    assert costs.step_seconds == pytest.approx(computing + 2 * (0.25 + 1.5 * 400 / 200))
    alone = cost_of(SIZES, replace(MACHINE, cores=4), make_layout(4, 1), WORK)
    assert alone.step_seconds == pytest.approx(1.3 * 2.1 + 0.25 + 1.5 * 400 / 200)
    for name in ("draws", "checkpoints"):  # which are computed before they are written
        assert costs.seconds[name] == 2 * alone.seconds[name] > 0


def test_shards_by_hand():
    costs = cost_of(SIZES, MACHINE, make_layout(4, 1), WORK, sharded=True)
    assert costs.wire == 0.75 * 3 * 400  # weights are gathered twice, gradients summed once
    assert total(costs.memory) == 1000 + 4 * 100 + 2 * 100
    assert costs.resume_memory == 1000 + 2 * 200
    assert costs.seconds["update"] == pytest.approx(1000 * 2 * 1.3 * 0.3 / 4)


def test_frozen_weights_are_stored_once_but_saved_in_each_checkpoint():
    sizes = Sizes(weights=1000, trained=10, draw=10, shared=990)
    disk = cost_of(sizes, MACHINE, make_layout(chains=3), WORK).disk
    assert disk["draws"] == 3 * 20 * 10
    assert disk["what all draws share"] == 990
    assert disk["checkpoints"] == 3 * 2 * 1010


def test_chains_in_sequence_take_as_many_times_as_long():
    one = cost_of(SIZES, MACHINE, make_layout(), WORK)
    three = cost_of(SIZES, MACHINE, make_layout(chains=3), WORK)
    assert total(three.seconds) == pytest.approx(3 * total(one.seconds))
    assert three.memory == one.memory


def test_chains_wait_for_a_disk_that_is_too_slow():
    slow = replace(MACHINE, disk_bandwidth=10.0, cores=8)
    assert not cost_of(SIZES, slow, make_layout(), WORK).seconds["waiting for the disk"]
    costs = cost_of(SIZES, slow, make_layout(8), WORK)
    written = 8 * (20 * 400 + 101 * 800)
    assert total(costs.seconds) == pytest.approx(written / 10)
    assert costs.seconds["waiting for the disk"] > 0


def test_rare_draws_are_followed_by_checkpoints():
    assert Work(steps=1000, draws=20).checkpoints == 101
    assert Work(steps=1000, draws=10).checkpoints == 101 + 9
    assert Work(steps=1000, draws=20, checkpoint_every=300).checkpoints == 1 + 4


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, Layout(1, 1, 1)),
        ({"processes": 4}, Layout(4, 1, 4)),
        ({"processes": 4, "chains": 2}, Layout(2, 2, 2)),
        ({"processes": 2, "chains": 8}, Layout(8, 1, 2)),
        ({"chains": 64, "replicas": 8}, Layout(64, 8, 64)),
        ({"processes": 8, "chains": 4, "replicas": 4}, Layout(4, 4, 2)),
        ({"replicas": 3}, Layout(1, 3, 1)),
    ],
)
def test_chains_are_laid_out_as_run_does(given, found):
    assert make_layout(**given) == found


@pytest.mark.parametrize(
    "given",
    [
        {"processes": 4, "chains": 3},
        {"processes": 2, "chains": 3},
        {"processes": 2, "replicas": 4},
        {"processes": 0},
        {"chains": 2.5},
    ],
)
def test_what_cannot_be_divided_is_named(given):
    with pytest.raises(ValueError, match=r"chains=|processes must|chains must"):
        make_layout(**given)


# For all runs

BYTES = st.floats(1, 1e13)


@st.composite
def runs(draw):
    weights = draw(BYTES)
    sizes = Sizes(
        weights,
        weights * draw(st.floats(1e-6, 1)),
        draw(st.integers(0, 2)),
        layer=weights / draw(st.integers(4, 100)),
        draw=draw(BYTES),
        rest=draw(BYTES),
    )
    small = st.floats(1e-6, 100)
    machine = Machine(
        Step(draw(small), draw(small), draw(small)),
        draw_seconds=draw(small),
        checkpoint_seconds=draw(small),
        disk_bandwidth=draw(st.floats(1e6, 1e10)),
        bandwidth=draw(st.floats(1e6, 1e11)),
        latency=draw(small),
        crowding=draw(st.floats(1, 3)),
        lockstep=draw(st.floats(1, 3)),
        cores=draw(st.none() | st.integers(1, 64)),
    )
    work = Work(draw(st.integers(1, 10**6)), draw(st.integers(0, 1000)), draw(st.floats(0, 1)))
    chains, replicas = draw(st.integers(1, 64)), draw(st.integers(1, 16))
    return sizes, machine, make_layout(chains=chains, replicas=replicas), work


@given(runs())
def test_more_draws_cost_more(run):
    sizes, machine, layout, work = run
    works = (work, replace(work, draws=work.draws + 1))
    less, more = (cost_of(sizes, machine, layout, each) for each in works)
    assert total(more.disk) > total(less.disk)
    if works[1].checkpoints >= works[0].checkpoints:  # where draws are frequent, none follows them
        assert total(more.seconds) >= (1 - 1e-9) * total(less.seconds)
    assert more.memory == less.memory


@given(runs())
def test_more_chains_cost_more_disk_and_no_less_time(run):
    sizes, machine, layout, work = run
    more = make_layout(chains=2 * layout.chains, replicas=layout.replicas)
    one, two = (cost_of(sizes, machine, each, work) for each in (layout, more))
    assert total(two.disk) > total(one.disk)
    assert total(two.seconds) >= (1 - 1e-9) * total(one.seconds)
    assert two.wire_total == pytest.approx(2 * one.wire_total)


@given(runs())
def test_one_process_sends_nothing_and_several_less_than_twice_the_gradients(run):
    sizes, _, layout, _ = run
    assert wire_bytes(sizes, 1) == wire_bytes(sizes, 1, sharded=True) == 0
    sent = wire_bytes(sizes, layout.replicas)
    assert sent < wire_bytes(sizes, layout.replicas + 1) < 2 * sizes.trained


@given(runs())
def test_shards_take_no_more_memory(run):
    sizes, machine, layout, work = run
    whole = cost_of(sizes, machine, layout, work)
    shards = cost_of(sizes, machine, layout, work, sharded=layout.replicas > 1)
    assert total(shards.memory) <= (1 + 1e-9) * total(whole.memory)
    assert shards.resume_memory <= whole.resume_memory
    assert shards.disk == whole.disk


# Advice


def said(sizes=SIZES, machine=MACHINE, layout=None, work=WORK, **options):
    layout = layout or make_layout()
    sharded = options.get("sharded", False)
    costs = cost_of(sizes, machine, layout, work, sharded=sharded)
    return "\n".join(advise(costs, sizes, layout, work, **options))


def test_advice_names_what_dominates():
    assert "forward and backward: 57% of the time; more --replicas" in said()
    assert "57% of the time; all cores are busy" in said(cores=1)
    slow = replace(MACHINE, checkpoint_seconds=100.0)
    words = "checkpoints: 88% of the time; checkpoint_every=1000 in the chain_options of the task"
    assert f"{words} would be 14% of the time of the steps" in said(machine=slow)
    large = replace(SIZES, weights=4e9, trained=4e9, draw=4e9)
    assert "draws: 83% of the disk; --dtype bfloat16" in said(large)
    assert "of the disk; fewer --draws-per-cycle" in said(replace(large, draw=2e9))
    assert "of the disk; fewer --draws-per-cycle" in said(replace(large, weight_bytes=2))
    assert "of the disk" not in said()  # mostly logs
    assert "checkpoints: 98% of the disk; each holds all weights" in said(
        Sizes(weights=1e9, trained=10, draw=10, shared=5e7), work=Work(100, 1)
    )
    slow = replace(MACHINE, disk_bandwidth=10.0)
    assert "waiting for the disk" in said(machine=slow, layout=make_layout(8))


@pytest.mark.parametrize(
    ("work", "share"),
    [
        (Work(100_000, 2000, 0.5), 0.05),
        (Work(100_000, 5, 0.5), 0.05),
        (Work(100_000, 100, 0.5), 0.29),  # of which each draw has one
        (Work(2000, 100, 0.5), 0.29),  # at the start and at the end
    ],
)
def test_the_checkpoints_that_are_advised_take_as_long_as_said(work, share):
    slow = replace(MACHINE, checkpoint_seconds=400.0)
    words = said(machine=slow, work=work)
    every = int(words.partition("checkpoint_every=")[2].partition(" ")[0])
    advised = replace(work, checkpoint_every=every)
    costs = cost_of(SIZES, slow, make_layout(), advised)
    assert costs.seconds["checkpoints"] / (work.steps * 1.4) == pytest.approx(share, rel=0.1)
    assert f"would be {share:.0%} of the time of the steps" in words
    after_draws = 100 * work.draws <= work.steps  # each of which has one, too
    assert ("fewer --draws-per-cycle, each" in words) == (after_draws and share > 0.05)
    assert "checkpoint_every=" not in said(machine=slow, work=replace(work, checkpoint_every=10**6))


def test_advice_names_what_breaks_first():
    words = said(memory=1900.0, disk=10.0)
    assert words.startswith("breaks first, disk: ")
    assert "memory: 2.6 kB of 1.9 kB; it fits with --shards --replicas 4" in words
    assert "memory to resume" in words
    assert "breaks" not in said(memory=1e9, disk=1e9)
    assert "no number of --shards" in said(memory=500.0)


def test_times_have_the_unit_that_fits():
    times = (2e-5, 0.25, 42, 600, 9000, 8e5)
    shown = ["20 µs", "250 ms", "42 s", "10 min", "2.5 h", "9.26 days"]
    assert [readable_time(seconds) for seconds in times] == shown
