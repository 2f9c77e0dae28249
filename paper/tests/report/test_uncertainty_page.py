"""The page of the uncertainty experiment, from JSON alone."""

import copy
import json
import math

import numpy as np
import pytest

from paper.experiments import find_experiments, reproduce
from paper.pages import make_page
from paper.pages.uncertainty import METHODS
from paper.report.page import Grid, Picture


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smoke")
    reproduce(find_experiments()["uncertainty"], "smoke", folder)
    return json.loads((folder / "uncertainty.json").read_text())


@pytest.fixture
def results(smoke):
    return copy.deepcopy(smoke)


def set_shares(results, part, share, noise=0.001):
    """Let every row's low-entropy share and mean entropy follow from `share` of its method."""
    for record in results["records"].values():
        if record["part"] == part:
            for row in record["rows"]:
                value = share[row["method"]] + noise * record["seed"] * len(row["method"])
                row["below"] = [value / 2, value, 2 * value]
                row["entropy_outside"] = 1 - value


PAPERS_ORDER = {
    **dict.fromkeys(("SGD", "SGDM"), 0.5),
    **dict.fromkeys(("Snapshot-SGD", "Snapshot-SGDM"), 0.4),
    **dict.fromkeys(("SGLD", "SGHMC"), 0.3),
    **dict.fromkeys(("cSGLD", "cSGHMC"), 0.2),
}


def test_tables_and_figures(results):
    page = make_page(results)
    grids = {part.title: part for part in page.parts if isinstance(part, Grid)}
    paper, temperatures, tuned, search = grids.values()
    for grid in grids.values():
        assert all(len(row) == len(grid.header) for row in grid.rows)
    for grid in (paper, tuned, search):
        assert [row[0] for row in grid.rows] == list(METHODS)
    assert [row[1] for row in paper.rows] == ["0.01", "0.008"] * 4
    assert [row[2] for row in paper.rows] == ["1", "1", "4", "4"] + ["8"] * 4
    assert {row[1] for row in tuned.rows} <= {"0.1", "0.3"}
    assert [row[:3] for row in temperatures.rows[:3]] == [
        ["SGLD", "1/N", "2"],
        ["SGLD", "0.0045", "1"],
        ["SGLD", "1", "1"],
    ]
    assert len(temperatures.rows) == 12
    assert search.rows[0][1].startswith("0.1: ")
    assert "One seed, 4 epochs; the lowest is taken, and run for 4 epochs" in search.note

    pictures = [part for part in page.parts if isinstance(part, Picture)]
    assert [picture.name for picture in pictures] == ["paper", "tuned"]
    for picture in pictures:
        for axes in picture.figure.axes:
            assert len({line.get_linestyle() for line in axes.lines}) == 4
            assert len({line.get_color() for line in axes.lines}) == 4
            for line in axes.lines:
                entropies, shares = np.asarray(line.get_data())
                assert entropies[-1] == pytest.approx(math.log(10))
                assert (np.diff(shares) >= 0).all()


def test_numbers_are_means_over_seeds(results):
    records = results["records"].values()
    errors = [
        row["error"]
        for record in records
        if record["part"] == "paper"
        for row in record["rows"]
        if row["method"] == "SGD"
    ]
    assert len(errors) == 2
    table = next(part for part in make_page(results).parts if isinstance(part, Grid))
    assert table.rows[0][3].startswith(f"{50 * sum(errors):.2f} ± ")


def test_claims_hold_in_the_order_of_the_paper(results):
    set_shares(results, "paper", PAPERS_ORDER)
    claims = make_page(results).claims
    assert len(claims) == 8
    assert [claim.holds for claim in claims[:4]] == [True] * 4
    assert "8 of 8" in claims[0].ours
    assert "4 of 4" in claims[1].ours
    assert {claim.paper for claim in claims} == {"figure only, of notMNIST"}
    results["config"]["source"] = "mnist"
    assert {claim.paper for claim in make_page(results).claims} == {"figure only"}


@pytest.mark.parametrize(
    ("changed", "held", "outcomes"),
    [
        # Above Snapshot, SGLD and SGHMC.
        ({"cSGHMC": 0.45}, [False, None, True, None], "6 of 8 comparisons hold, 2 contradicted"),
        ({"SGLD": 0.6, "SGHMC": 0.6}, [True, True, False, True], "8 of 8 comparisons hold"),
        (
            {"SGLD": 0.199},
            [None, True, True, True],
            "6 of 8 comparisons hold, 2 undecided",
        ),
        # Below cSGLD and cSGHMC.
        ({"Snapshot-SGD": 0.1}, [True, None, True, False], "8 of 8 comparisons hold"),
        (
            {"Snapshot-SGD": 0.1, "Snapshot-SGDM": 0.1},
            [True, None, True, False],
            "8 of 8 comparisons hold",
        ),
        (
            {"cSGLD": 0.7, "cSGHMC": 0.7},
            [False, False, True, False],
            "0 of 8 comparisons hold, 8 contradicted",
        ),
    ],
)
def test_each_claim_can_fall_each_way(results, changed, held, outcomes):
    set_shares(results, "tuned", {**PAPERS_ORDER, **changed})
    claims = make_page(results).claims[4:]
    assert [claim.holds for claim in claims] == held
    assert claims[0].ours.startswith(f"{outcomes} (")


def test_comparisons_that_do_not_hold_are_named(results):
    set_shares(results, "tuned", {**PAPERS_ORDER, "cSGHMC": 0.45})
    ours = make_page(results).claims[5].ours
    assert "; contradicted: cSGHMC is 0.0470 ± 0.0030 above Snapshot-SGD; " in ours
    assert "cSGLD is" not in ours


def set_training(results, **scores):
    """Give every row of the paper's step sizes the scores of cyclical methods, or of the others."""
    for record in results["records"].values():
        for row in record["rows"] if record["part"] == "paper" else ():
            cyclical = row["method"].startswith(("Snapshot", "c"))
            for name, (with_cycles, without) in scores.items():
                row[name] = (with_cycles if cyclical else without) + record["seed"] / 1000


def test_the_page_says_who_is_less_trained_by_the_numbers(results):
    more = {"error": (0.024, 0.018), "train_loss": (0.03, 0.01), "entropy_outside": (1.0, 0.6)}
    set_training(results, **more, nll=(0.08, 0.06))
    page = make_page(results)
    table = next(part for part in page.parts if isinstance(part, Grid))
    assert "Snapshot-SGD, Snapshot-SGDM, cSGLD, cSGHMC. So part of the higher" in page.summary
    assert (
        "Snapshot-SGD with 4 draws: test error 2.45%, NLL 0.0805, training loss 0.0305, against "
        "SGD with 1 draw: test error 1.85%, NLL 0.0605, training loss 0.0105; "
    ) in table.note
    assert "In 8 epochs, which 4 cycles" in table.note
    assert "last cycle only: it understates" in table.note
    nll = "test NLL of cSGLD and cSGHMC is better in 0 and worse in 8 of the 8"
    assert nll in page.claims[0].ours

    set_training(results, nll=(0.06, 0.08))
    page = make_page(results)
    table = next(part for part in page.parts if isinstance(part, Grid))
    assert "step sizes, no cyclical method is clearly less trained" in page.summary
    assert "No cyclical method has clearly more training loss" in table.note
    assert "is better in 8 and worse in 0 of the 8" in page.claims[0].ours


def test_the_page_of_digits_says_what_the_data_are(results):
    results["experiment"] = "uncertainty-digits"
    page = make_page(results)
    assert page.title == "Uncertainty: entropy on letters"
    assert "digits of 8x8 pixels" in str(page.parts[0])
    of_mnist = make_page({**results, "experiment": "uncertainty"})
    assert page.claims == of_mnist.claims
    assert len(page.parts) == len(of_mnist.parts) + 1


def test_a_difference_within_its_error_is_undecided(results):
    # Seeds differ by 0.3 times the length of the name, so differences by 0.3 and 0.6.
    set_shares(results, "paper", PAPERS_ORDER, noise=0.3)
    claim = make_page(results).claims[2]
    assert claim.holds is None
    assert "; undecided: SGHMC is " in claim.ours


def test_one_seed_or_an_unfinished_run_is_not_judged(results):
    results["records"] = {
        key: record
        for key, record in results["records"].items()
        if record["part"] == "paper" and record["seed"] == 0
    }
    page = make_page(results)
    assert [claim.holds for claim in page.claims] == [None] * 4
    results["records"] = {}
    assert make_page(results).claims == []
