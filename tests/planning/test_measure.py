"""What is measured of a task: sizes beside a real run, and times as ratios."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import DrawStore, Recipe, Task
from csgmcmc.errors import StoreError
from csgmcmc.planning import Work, cost_of, make_layout, measure_disk, measure_task, measure_wire
from csgmcmc.planning.measure import states_of
from csgmcmc.planning.probe import bandwidth_of

BRIEFLY: Any = {"seconds": 0.01}


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr("csgmcmc.planning.measure.PROBE", 10**5)


def make_task(width=200, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
    data = TensorDataset(torch.randn(80, width), torch.randint(2, (80,)))
    recipe = Recipe(lr=1e-3, epochs=4, cycles=2, draws_per_cycle=5, exploration=0.5)
    loader = DataLoader(data, 10, shuffle=True)
    return Task(model, nn.functional.cross_entropy, loader, recipe=recipe, **options)


def test_the_disk_of_a_run_is_predicted(tmp_path):
    task = make_task()
    sizes, machine = measure_task(task, task.recipe, tmp_path, **BRIEFLY)
    assert list(tmp_path.iterdir()) == []
    schedule = task.recipe.make_schedule(task.steps_per_epoch())
    work = Work(schedule.steps, schedule.total_draws, 0.5)
    predicted = cost_of(sizes, machine, make_layout(), work).disk
    store = DrawStore(tmp_path / "run")
    parts = (task.model, task.loss, task.data, store)
    task.recipe.make_chain(*parts, num_data=task.size, progress=False).run()
    assert predicted["draws"] == store.size_on_disk()
    found = sum(file.stat().st_size for file in store.path.rglob("*") if file.is_file())
    assert sum(predicted.values()) == pytest.approx(found, rel=0.03)


@pytest.mark.parametrize(("dtype", "size"), [(None, 4), (torch.bfloat16, 2)])
def test_sizes_are_those_of_the_model(tmp_path, dtype, size):
    task = make_task()
    sizes, machine = measure_task(task, task.recipe, tmp_path, dtype=dtype, **BRIEFLY)
    count = sum(param.numel() for param in task.model.parameters())
    assert sizes.weights == sizes.trained == 4 * count
    assert sizes.states == 1
    assert sizes.layer == 4 * (200 * 200 + 200)
    assert size * count < sizes.draw < size * count + 500
    assert sizes.shared == 0
    assert sizes.rest > 0
    assert machine.shared is not None
    times = (sum(vars(machine.alone).values()), machine.draw_seconds, machine.checkpoint_seconds)
    assert min(*times, machine.predict_seconds, machine.disk_bandwidth) > 0


def test_frozen_weights_are_shared_by_all_draws(tmp_path):
    task = make_task()
    task.model.get_submodule("0").requires_grad_(False)
    sizes, _ = measure_task(task, task.recipe, tmp_path, **BRIEFLY)
    assert sizes.trained == 4 * (2 * 200 + 2)
    assert sizes.trained < sizes.draw < sizes.trained + 500
    assert sizes.shared == pytest.approx(4 * (200 * 200 + 200), rel=0.01)


def test_neither_threads_nor_callbacks_of_the_task_are_left_or_called(tmp_path):
    called = []
    task = make_task(width=8, chain_options={"callbacks": called.append, "checkpoint_every": 3})
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        measure_task(task, task.recipe, tmp_path / "not" / "there", one_thread=True, **BRIEFLY)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert not called
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sampler", "states"), [("SGLD", 0), ("SGHMC", 1), ("PSGLD", 1), ("SGNHT", 2)]
)
def test_states_of_samplers(sampler, states):
    assert states_of(Recipe(sampler=sampler)) == states


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="all cores may be used here")
def test_the_cores_are_those_that_the_process_may_use(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4})
    task = make_task()
    _, machine = measure_task(task, task.recipe, tmp_path, **BRIEFLY)
    assert machine.cores == 3


def test_a_folder_that_cannot_be_written_is_named():
    with pytest.raises(StoreError, match="writing to measure the disk failed"):
        measure_disk(Path("/proc/self"))


def test_a_wait_as_long_as_a_sum_leaves_a_bandwidth_that_a_machine_can_have():
    assert bandwidth_of(4e5, 1.5e-3, latency=5e-4) == pytest.approx(4e8)
    assert bandwidth_of(4e5, 1e-3, latency=1e-3) == pytest.approx(4e9)
    assert bandwidth_of(4e5, 1e-3, latency=2e-3) == pytest.approx(4e9)


def test_processes_that_take_too_long_are_told_in_a_sentence(monkeypatch):
    monkeypatch.setattr("csgmcmc.planning.measure.WIRE_SECONDS", 1e-3)
    with pytest.raises(ValueError, match=r"took longer than 0\.001 s: give --bandwidth"):
        measure_wire(2, weights=10)


@pytest.mark.slow
@pytest.mark.parametrize("weights", [10, 10**5])
def test_processes_measure_together(weights):
    """Within what any machine can do, however busy: the bounds are not a test of its speed."""
    wire = measure_wire(2, weights=weights)
    assert 1e5 < wire["bandwidth"] < 1e12
    assert 0 < wire["latency"] < 10
    assert 1 <= wire["crowding"] < 10**4
    assert 1 <= wire["lockstep"] < 10**4


@pytest.mark.slow
def test_the_time_of_a_run_is_predicted(tmp_path):
    """Of one process; a machine may have other things to do, but hardly three times in turn."""
    task = make_task(width=500)
    recipe = task.recipe.replace(epochs=100)
    schedule = recipe.make_schedule(task.steps_per_epoch())
    work = Work(schedule.steps, schedule.total_draws, 0.5)
    ratios = []
    for attempt in range(3):
        sizes, machine = measure_task(task, recipe, tmp_path, seconds=3)
        predicted = sum(cost_of(sizes, machine, make_layout(), work).seconds.values())
        parts = (task.model, task.loss, task.data, DrawStore(tmp_path / f"run{attempt}"))
        chain = recipe.make_chain(*parts, num_data=task.size, progress=False)
        began = time.perf_counter()
        chain.run()
        ratios.append(predicted / (time.perf_counter() - began))
        if 0.3 < ratios[-1] < 3:
            return
    pytest.fail(f"predicted / measured: {ratios}")
