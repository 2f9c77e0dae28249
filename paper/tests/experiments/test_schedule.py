import json

import numpy as np
import pytest

from csgmcmc.schedules import Cyclical, Keep
from paper.experiments import reproduce
from paper.experiments.schedule import (
    ScheduleConfig,
    ScheduleExperiment,
    distance_from_the_paper,
)


@pytest.fixture(scope="module")
def record():
    config = ScheduleConfig(steps=600, cycles=6, cycles_shown=2)
    return ScheduleExperiment().run(config, None)


def test_sums_are_the_closed_forms(record):
    # Where M divides K: the sum of a cycle of L cosines is (L + 1) / 2, of squares 3L/8 + 1/2.
    cyclical, decreasing = record["cyclical"], record["decreasing"]
    assert cyclical["sum"] == pytest.approx(0.09 * (600 + 6) / 2, rel=1e-12)
    assert cyclical["sum_of_squares"] == pytest.approx(0.09**2 * (3 * 600 / 8 + 6 / 2), rel=1e-12)
    k = np.arange(1, 601)
    assert decreasing["sum"] == pytest.approx((0.05 * k**-0.55).sum(), rel=1e-12)
    assert (cyclical["draws"], decreasing["draws"]) == (450, 600)


def test_the_curve_keeps_the_ends_of_every_stage(record):
    pieces = record["cyclical"]["curve"]
    stages = [(piece["stage"], piece["steps"][0], piece["steps"][-1]) for piece in pieces]
    assert stages == [
        ("explore", 0, 24),
        ("sample", 25, 99),
        ("explore", 100, 124),
        ("sample", 125, 199),
    ]
    for piece in pieces:
        steps = np.array(piece["steps"])
        exact = 0.045 * (np.cos(np.pi * (steps % 100) / 100) + 1)
        np.testing.assert_allclose(piece["step_sizes"], exact, rtol=1e-4)
    assert [piece["stage"] for piece in record["decreasing"]["curve"]] == ["sample"]


def test_starts_and_ends_of_cycles_also_where_the_last_is_cut_short():
    config = ScheduleConfig(steps=95, cycles=10, cycles_shown=1)
    record = ScheduleExperiment().run(config, None)
    assert record["cycle_length"] == 10
    cyclical = record["cyclical"]
    assert cyclical["cycle_starts"] == [0.09] * 10
    whole, cut = 0.045 * (np.cos(np.pi * np.array([0.9, 0.4])) + 1)
    np.testing.assert_allclose(cyclical["cycle_ends"], [whole] * 9 + [cut], rtol=1e-4)


@pytest.mark.parametrize(("steps", "cycles"), [(600, 6), (95, 10), (50_000, 30)])
def test_the_library_has_the_papers_formula(steps, cycles):
    distance = distance_from_the_paper(ScheduleConfig(steps=steps, cycles=cycles))
    assert distance["largest_difference"] < 1e-15
    assert distance["steps_in_another_stage"] == 0
    assert distance["steps_at_another_temperature"] == 0


def test_another_formula_is_noticed(monkeypatch):
    other = Cyclical(
        601, cycles=6, exploration=0.27, keep=Keep(every=1), exploration_temperature=0.5
    )
    table = {name: column[1:] for name, column in other.table().items()}  # counted from 2
    monkeypatch.setattr(Cyclical, "table", lambda _: table)
    distance = distance_from_the_paper(ScheduleConfig(steps=600, cycles=6))
    assert distance["largest_difference"] > 1e-3
    assert distance["steps_in_another_stage"] > 0
    assert distance["steps_at_another_temperature"] > 0


def test_smoke_runs_and_its_file_is_small(tmp_path):
    results = reproduce(ScheduleExperiment(), "smoke", tmp_path)
    path = tmp_path / "schedule.json"
    assert json.loads(path.read_text())["records"] == results.records
    assert path.stat().st_size < 100_000
