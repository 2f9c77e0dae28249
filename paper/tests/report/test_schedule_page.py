import json

import pytest

from paper.experiments import find_experiments, reproduce
from paper.pages import make_page
from paper.report.page import Grid, Picture


@pytest.fixture
def results(tmp_path):
    reproduce(find_experiments()["schedule"], "smoke", tmp_path)
    return json.loads((tmp_path / "schedule.json").read_text())


def test_all_claims_hold_in_the_smoke_run(results):
    page = make_page(results)
    assert [claim.holds for claim in page.claims] == [True] * 5
    assert page.claims[1].ours == "0.50100 K·α₀"  # (K + M) / 2K
    assert page.claims[2].ours == "0.37600 K·α₀²"  # 3/8 + M / 2K
    assert page.claims[3].ours == "6 of 6 cycles start at α₀"


@pytest.mark.parametrize(
    ("claim", "name", "value"),
    [
        (0, "largest_difference", 1e-9),
        (0, "steps_in_another_stage", 1),
        (0, "steps_at_another_temperature", 1),
        (1, "sum", 140.0),
        (2, "sum_of_squares", 9.5),
        (3, "cycle_starts", [0.09] * 5 + [0.08]),
        (4, "cycle_ends", [1e-5] * 5 + [0.089]),
    ],
)
def test_a_claim_that_fails_is_not_held(claim, name, value, results):
    (record,) = results["records"].values()
    assert name in record["cyclical"]
    record["cyclical"][name] = value
    assert make_page(results).claims[claim].holds is False


def test_exploration_is_dashed_and_sampling_solid(results):
    page = make_page(results)
    (picture,) = [part for part in page.parts if isinstance(part, Picture)]
    for axes in picture.figure.axes:
        styles = [line.get_linestyle() for line in axes.lines]
        assert styles == ["--", "-"] * 4 + ["-"]
    _, labels = picture.figure.axes[0].get_legend_handles_labels()
    assert labels == ["cyclical: explore", "cyclical: sample", "decreasing"]


def test_the_table_has_both_schedules(results):
    (grid,) = [part for part in make_page(results).parts if isinstance(part, Grid)]
    assert [row[0] for row in grid.rows] == ["cyclical", "decreasing"]
    assert all(len(row) == len(grid.header) for row in grid.rows)
    assert [row[-1] for row in grid.rows] == ["2,250", "3,000"]
