"""The cost model of `benchmarks/plan.py`, and the page docs/howto/plan.md."""

import json
import math
import re
import shlex
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from benchmarks.failures import (
    best_interval,
    readable_time,
    simulate_share,
    useful_share,
    young_interval,
)
from benchmarks.measure import measure_chain
from benchmarks.plan import Plan, cost_of, main, readable_size, wire_bytes
from benchmarks.planning import markdown
from benchmarks.wire import bandwidth_of
from tests.docs.support import DOCS, ROOT

PAGE = (DOCS / "howto" / "plan.md").read_text(encoding="utf-8")
ROWS = json.loads((ROOT / "benchmarks" / "results" / "planning.json").read_text(encoding="utf-8"))
SHOWN = re.findall(
    r"^```console\n\$ python -m benchmarks\.plan (.*?[^\\])\n(.*?)^```",
    PAGE,
    re.DOTALL | re.MULTILINE,
)
PLAN = Plan(
    parameters=100,
    step_seconds=1.0,
    steps=1000,
    layers=4,
    draws=20,
    noisy=0.5,
    update_seconds=0.2,
    noise_seconds=0.4,
    draw_seconds=2.0,
    checkpoint_seconds=3.0,
    predict_seconds=0.5,
    disk_bandwidth=1e9,
    bandwidth=200.0,
    latency=0.25,
    crowding=1.2,
    lockstep=1.3,
    cores=2,
    rest=1000.0,
)


def total(parts):
    return sum(parts.values())


def test_one_chain_on_one_process():
    costs = cost_of(PLAN)
    assert costs.step_seconds == pytest.approx(1.0 + 0.2 + 0.5 * 0.4)
    # 101 checkpoints: one at the start, then every 10 of 1000 steps; 20 draws are not rare.
    assert total(costs.seconds) == pytest.approx(1000 * 1.4 + 20 * 2 + 101 * 3)
    assert total(costs.memory) == 1000 + 4 * 400  # weights, gradients and a copy, velocities
    assert costs.resume_memory == 1000 + 3 * 800
    assert total(costs.disk) - costs.disk["logs"] == 20 * 400 + 2 * 800
    assert costs.wire == costs.wire_total == 0
    assert costs.predict_seconds == 20 * 0.5


def test_two_replicas():
    plan = replace(PLAN, replicas=2, steps=2000)
    costs = cost_of(plan)
    # A ring of two sends all gradients once; one bucket.
    assert costs.wire == 2 * 0.5 * 400
    assert costs.wire_total == 1000 * 2 * 400
    assert costs.step_seconds == pytest.approx(1.3 * (1.0 + 0.2 + 0.2) + 0.25 + 400 / 200)
    assert total(costs.memory) == 1000 + 5 * 400  # and buckets
    assert costs.seconds["writing checkpoints"] == 101 * (3 + 4 * 0.25)


def test_two_chains_side_by_side_do_not_communicate():
    costs = cost_of(replace(PLAN, chains=2, processes=2, draws=40))
    assert costs.wire == 0
    assert costs.step_seconds == pytest.approx(1.2 * (1.0 + 0.2 + 0.2))
    assert costs.seconds["writing checkpoints"] == 101 * 3


def test_four_processes_on_two_cores():
    plan = replace(PLAN, replicas=4, split_batch=1)
    costs, alone = cost_of(plan), cost_of(replace(plan, cores=4))
    computing = 2 * 1.3 * (0.25 * 1.0 + 0.2 + 0.2)
    assert costs.step_seconds == pytest.approx(computing + 2 * (0.25 + 1.5 * 400 / 200))
    for name in ("writing draws", "writing checkpoints"):  # computed before they are written
        assert costs.seconds[name] == 2 * alone.seconds[name] > 0


def test_shards():
    costs = cost_of(replace(PLAN, replicas=4, shards=1, split_batch=1))
    assert costs.wire == 0.75 * 3 * 400  # weights are gathered twice, gradients summed once
    assert total(costs.memory) == 1000 + 4 * 100 + 2 * 100
    assert costs.resume_memory == 1000 + 2 * 200
    assert costs.seconds["update"] == pytest.approx(1000 * 2 * 1.3 * 0.2 / 4)


def test_frozen_weights_are_stored_once_but_saved_in_each_checkpoint():
    disk = cost_of(replace(PLAN, parameters=250, trained=2.5, chains=3, draws=60)).disk
    assert disk["draws"] == 3 * 20 * 10
    assert disk["what all draws share"] == 990
    assert disk["checkpoints"] == 3 * 2 * 1010


def test_chains_in_sequence_take_as_many_times_as_long():
    one, three = cost_of(PLAN), cost_of(replace(PLAN, chains=3, draws=60))
    assert total(three.seconds) == pytest.approx(3 * total(one.seconds))
    assert three.memory == one.memory


def test_chains_wait_for_a_slow_disk():
    slow = replace(PLAN, disk_bandwidth=10.0, cores=8)
    assert not cost_of(slow).seconds["waiting for the disk"]
    costs = cost_of(replace(slow, chains=8, processes=8, draws=160))
    assert total(costs.seconds) == pytest.approx(8 * (20 * 400 + 101 * 800) / 10)
    assert costs.seconds["waiting for the disk"] > 0


def test_rare_draws_are_followed_by_checkpoints():
    assert PLAN.complete().checkpoints == 101
    assert replace(PLAN, draws=10).complete().checkpoints == 101 + 9
    assert replace(PLAN, checkpoint_every=300).complete().checkpoints == 1 + 4


@pytest.mark.parametrize(
    "layout",
    [
        {"processes": 4, "chains": 3},
        {"processes": 2, "chains": 3},
        {"processes": 2, "replicas": 4, "chains": 1},
        {"shards": 1},
    ],
)
def test_an_impossible_layout_is_an_error(layout):
    with pytest.raises(ValueError, match=r"processes|shards"):
        cost_of(replace(PLAN, **layout))


SECONDS = st.floats(1e-6, 100)


@st.composite
def plans(draw):
    weights, chains, replicas = (
        draw(st.floats(1, 1e13)),
        draw(st.integers(1, 64)),
        draw(st.integers(1, 16)),
    )
    return Plan(
        parameters=weights,
        trained=weights * draw(st.floats(1e-6, 1)),
        step_seconds=draw(SECONDS),
        update_seconds=draw(SECONDS),
        noise_seconds=draw(SECONDS),
        draw_seconds=draw(SECONDS),
        checkpoint_seconds=draw(SECONDS),
        steps=draw(st.integers(1, 10**6)),
        states=draw(st.integers(0, 2)),
        layers=draw(st.integers(4, 100)),
        draws=chains * draw(st.integers(0, 1000)),
        noisy=draw(st.floats(0, 1)),
        chains=chains,
        replicas=replicas,
        processes=chains * replicas,
        disk_bandwidth=draw(st.floats(1e6, 1e10)),
        bandwidth=draw(st.floats(1e6, 1e11)),
        latency=draw(SECONDS),
        crowding=draw(st.floats(1, 3)),
        lockstep=draw(st.floats(1, 3)),
        cores=draw(st.integers(0, 64)),
    )


@given(plans())
def test_more_draws_cost_more(plan):
    more = replace(plan, draws=plan.draws + plan.chains)
    few, many = cost_of(plan), cost_of(more)
    assert total(many.disk) > total(few.disk)
    if more.complete().checkpoints >= plan.complete().checkpoints:  # frequent draws have none
        assert total(many.seconds) >= (1 - 1e-9) * total(few.seconds)
    assert many.memory == few.memory


@given(plans())
def test_more_chains_cost_more_disk_and_no_less_time(plan):
    chains = 2 * plan.chains
    more = replace(plan, chains=chains, processes=chains * plan.replicas, draws=2 * plan.draws)
    one, two = cost_of(plan), cost_of(more)
    assert total(two.disk) > total(one.disk)
    assert total(two.seconds) >= (1 - 1e-9) * total(one.seconds)
    assert two.wire_total == pytest.approx(2 * one.wire_total)


@given(plans())
def test_wire_is_below_twice_the_gradients(plan):
    alone = replace(plan, replicas=1)
    assert wire_bytes(alone) == wire_bytes(replace(alone, shards=1)) == 0
    more = replace(plan, replicas=plan.replicas + 1)
    assert wire_bytes(plan) < wire_bytes(more) < 2 * plan.trained * plan.weight_bytes


@given(plans())
def test_shards_take_no_more_memory(plan):
    whole, shards = cost_of(plan), cost_of(replace(plan, shards=int(plan.replicas > 1)))
    assert total(shards.memory) <= (1 + 1e-9) * total(whole.memory)
    assert shards.resume_memory <= whole.resume_memory
    assert shards.disk == whole.disk


# The command


def shown(capsys, *arguments):
    main([*map(str, arguments)])
    return capsys.readouterr().out


LARGE = ["--parameters", "7e9", "--step-seconds", "0.5", "--steps", "10000"]


def test_limits_that_are_exceeded(capsys):
    limits = ["--memory", "80e9", "--disk", "1e12", "--replicas", "2"]
    assert "too much memory to resume: 168 GB of 80 GB" in shown(capsys, *LARGE, *limits)
    assert "too much" not in shown(capsys, *LARGE, *limits, "--shards", 1)


def test_adapters_and_narrow_draws_are_smaller(capsys):
    assert "a draw of 40 MB" in shown(capsys, *LARGE, "--trained", "2e7", "--stored-bytes", "2")
    assert "a draw of 14 GB" in shown(capsys, *LARGE, "--stored-bytes", "2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "parameters"),
        (["--parameters", "7e9"], "step_seconds"),
        (["missing.py:make_chain"], "missing.py"),
        ([*LARGE, "--shards", "1"], "replicas"),
        ([*LARGE, "--bandwidth", "nan"], "bandwidth"),
        ([*LARGE, "--draws", "-1"], "draws"),
    ],
)
def test_bad_options_are_named(arguments, words):
    with pytest.raises(SystemExit, match=words):
        main(arguments)


def make_chain(draws=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 2))
    data = TensorDataset(torch.randn(80, 200), torch.randint(2, (80,)))
    sampler = csgmcmc.SGHMC(model.parameters(), 1e-3, num_data=80, seed=0)
    schedule = csgmcmc.Cyclical(32, 2, exploration=0.5, draws_per_cycle=5)
    loader = DataLoader(data, 10, shuffle=True)
    parts = (model, nn.functional.cross_entropy, loader, sampler, schedule, draws)
    return csgmcmc.Chain(*parts, progress=False)


def test_measured_sizes_are_those_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.measure.PROBE", 10**5)
    found = measure_chain(make_chain(), tmp_path, seconds=0.01)
    plan = Plan(**found).complete()
    count = 200 * 200 + 200 + 2 * 200 + 2
    assert plan.parameters == plan.trained == count
    assert (plan.states, plan.weight_bytes, plan.steps, plan.draws, plan.noisy) == (
        1,
        4,
        32,
        10,
        0.5,
    )
    assert 4 * count < plan.draw_bytes < 4 * count + 500
    times = (plan.step_seconds, plan.draw_seconds, plan.checkpoint_seconds, plan.predict_seconds)
    assert min(*times, plan.disk_bandwidth, plan.rest) > 0
    store = csgmcmc.DrawStore(tmp_path / "run")
    make_chain(store).run()
    predicted = cost_of(plan).disk
    assert predicted["draws"] == store.size_on_disk()
    found = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
    assert total(predicted) == pytest.approx(found, rel=0.03)


def test_bandwidth_where_latency_is_as_long_as_the_sum():
    assert bandwidth_of(4e5, 1.5e-3, latency=5e-4) == pytest.approx(4e8)
    assert bandwidth_of(4e5, 1e-3, latency=2e-3) == pytest.approx(4e9)


# How often to save

HOUR = 3600.0


@pytest.mark.parametrize("interval", [60.0, 600.0, 3600.0, 10_000.0])
@pytest.mark.parametrize("restart", [0.0, 300.0])
def test_simulated_share_is_the_expectation(interval, restart):
    exact = useful_share(interval, 30.0, restart, HOUR)
    # The number of intervals between failures varies by no more than its mean plus 1; four
    # standard errors of 10^5 of them: one false alarm in 16,000, and the seed is fixed.
    mean = exact * HOUR / interval
    spread = 4 * math.sqrt(mean**2 + mean) / math.sqrt(1e5) * interval / HOUR
    assert simulate_share(interval, 30.0, restart, HOUR) == pytest.approx(exact, abs=spread)


def test_useful_share_by_hand():
    # Nothing is lost but the time of the checkpoints if failures are very rare.
    assert useful_share(90.0, 10.0, 60.0, 1e12) == pytest.approx(0.9)
    # M exp(R / M) (exp((t + d) / M) - 1) seconds for t of work.
    expected = 100 * math.exp(0.5) * (math.exp(0.6) - 1)
    assert useful_share(50.0, 10.0, 50.0, 100.0) == pytest.approx(50 / expected)
    assert useful_share(1e6, 1.0, 1.0, 1.0) == 0


@pytest.mark.parametrize("checkpoint", [0.1, 10.0, 300.0, 3000.0])
def test_best_interval_has_the_largest_share(checkpoint):
    best = best_interval(checkpoint, HOUR)
    shares = [useful_share(best * factor, checkpoint, 60.0, HOUR) for factor in (0.9, 1, 1.1)]
    assert max(shares) == shares[1]
    assert best <= young_interval(checkpoint, HOUR)


def test_young_interval_is_the_limit_of_short_checkpoints():
    assert young_interval(8.0, 100.0) == 40.0
    assert best_interval(1e-3, HOUR) == pytest.approx(young_interval(1e-3, HOUR), rel=1e-3)


def test_failures_in_bursts_lose_less():
    at_random, bursts = (simulate_share(600.0, 30.0, 60.0, HOUR, shape=k) for k in (1.0, 0.6))
    assert bursts > at_random


def test_readable_time():
    times = (2e-5, 0.25, 42, 600, 9000, 8e5)
    expected = ["20 µs", "250 ms", "42 s", "10 min", "2.5 h", "9.26 days"]
    assert [readable_time(seconds) for seconds in times] == expected


# The page


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_the_page_shows_the_output_of_the_command(command, output, capsys):
    said = shown(capsys, *shlex.split(command.replace("\\\n", " ")))
    assert [line.rstrip() for line in said.splitlines()] == output.splitlines()


def test_the_page_has_the_measured_table():
    assert len(SHOWN) == 4
    assert f"<!-- table -->\n{markdown(ROWS)}\n<!-- end of table -->" in PAGE


def test_the_table_has_all_sizes_and_layouts():
    alone = [row["weights"] for row in ROWS if (row["chains"], row["replicas"]) == (1, 1)]
    assert alone == [10**power for power in range(4, 9)]
    assert {(row["chains"], row["replicas"]) for row in ROWS} >= {(1, 2), (1, 4), (2, 1), (4, 1)}


@pytest.mark.parametrize("name", ["run", "step", "memory", "disk", "wire"])
def test_predictions_are_within_a_quarter(name):
    pairs = [(row["predicted"][name], row["measured"][name]) for row in ROWS]
    assert all(0.8 <= one / other <= 1.25 for one, other in pairs if one)


def test_sizes_have_the_unit_that_fits():
    sizes = (0, 999, 1_000, 217_000, 1_234_567, 5.5e9, 2e12, 3e17)
    shown = ["0 B", "999 B", "1 kB", "217 kB", "1.23 MB", "5.5 GB", "2 TB", "300 PB"]
    assert [readable_size(size) for size in sizes] == shown
