import copy
import json

import pytest

from csgmcmc.experiments import reproduce
from csgmcmc.experiments.convergence import Convergence
from csgmcmc.report.page import Grid, Picture
from csgmcmc.report.pages import make_page


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    reproduce(Convergence(), "smoke", out)
    return json.loads((out / "convergence.json").read_text())


@pytest.fixture
def changed(results):
    return copy.deepcopy(results)


def claim(results, *words):
    found = [c for c in make_page(results).claims if all(word in c.text for word in words)]
    assert len(found) == 1
    return found[0]


def test_it_has_all_claims_tables_and_figures(results):
    page = make_page(results)
    assert len(page.claims) == 13
    names = [part.name for part in page.parts if isinstance(part, Picture)]
    assert names == [f"convergence-{name}" for name in ("rates", "distance", "floor", "well")]
    grids = {part.title.split(",")[0]: part for part in page.parts if isinstance(part, Grid)}
    for grid in grids.values():
        assert grid.rows
        assert all(len(row) == len(grid.header) for row in grid.rows)
    assert len(grids["Exponents of bias and MSE of averages of θ² on N(0"].rows) == 16
    well = next(grid for title, grid in grids.items() if title.startswith("Double well"))
    assert [row[0] for row in well.rows][-1] == "exact draws"


def test_figures_are_drawn(results, tmp_path):
    for part in make_page(results).parts:
        if isinstance(part, Picture):
            part.figure.savefig(tmp_path / f"{part.name}.svg")
            assert 1_000 < (tmp_path / f"{part.name}.svg").stat().st_size < 300_000


def test_a_rate_holds_with_its_exponents_and_not_with_worse(changed):
    def fit(exponent):
        return {"slope": exponent, "points": 3, "from": 1.0, "to": 9.0, "at": 0.1}

    for key in ("rates, fixed number of cycles", "rates, fixed length of cycles"):
        slopes = changed["records"][key]["weighted"]["slopes"]
        slopes.update(mse_K=fit(-1.0), mse_alpha0=fit(2.1))
    assert claim(changed, "MSE", "weighted").holds is True
    slopes["mse_K"] = fit(-0.67)
    assert claim(changed, "MSE", "weighted").holds is False
    slopes["mse_K"] = None
    assert claim(changed, "MSE", "weighted").holds is None
    assert "K nowhere dominant" in claim(changed, "MSE", "weighted").ours


def test_nearer_means_nearer_than_every_rival(changed):
    methods = changed["records"]["distance, K=400, alpha0=0.05"]["methods"]
    for name, row in methods.items():
        row["end"] = 0.1 if name == "cyclical" else 0.2
    assert claim(changed, "Gaussian", "equal sum").holds is True
    methods["constant, equal sum"]["end"] = 0.05  # is no rival: its steps do not decrease
    assert claim(changed, "Gaussian", "equal sum").holds is True
    methods["k^-1, equal sum"]["end"] = 0.05
    assert claim(changed, "Gaussian", "equal sum").holds is False
    assert claim(changed, "Gaussian", "h₀").holds is True


def test_an_overflow_is_said_and_not_counted(changed):
    whole = changed["records"]["distance, K=400, alpha0=0.05"]
    other = copy.deepcopy(whole)
    row = other["methods"]["k^-1, equal sum"]
    for name in ("end", "worst", "last_quarter_mean", "last_quarter_worst"):
        row[name] = None
    row["curve"][-1] = None
    changed["records"]["distance, K=800, alpha0=0.05"] = other
    assert "1 more overflowed" in claim(changed, "Gaussian", "equal sum").ours
    grid = next(
        part
        for part in make_page(changed).parts
        if isinstance(part, Grid) and part.title.startswith("W₂ to a Gaussian")
    )
    assert any("overflow" in cell for row in grid.rows for cell in row)


def test_wells_differ_by_more_than_their_errors(changed):
    for key, record in changed["records"].items():
        if key.startswith("double well"):
            ours = record["method"] == "cyclical"
            record["w2"][-1] = (0.1 if ours else 0.2) + (0.001 if key.endswith("0") else 0)
    assert claim(changed, "Double well", "equal sum").holds is True
    for seed in range(2):
        record = changed["records"][f"double well, k^-0.55, equal sum, seed {seed}"]
        record["w2"][-1] = 0.1 + 0.2 * seed  # a mean of 0.2, and an error as large as the gap
    assert claim(changed, "Double well", "equal sum").holds is False


def test_the_appendix_is_judged_by_its_least_ratio(changed):
    assert claim(changed, "Strongly convex", "exact").holds is True
    assert claim(changed, "Strongly convex", "noisy").holds is False
    for row in changed["records"]["strongly convex"]["rows"]:
        row["stated_least_ratio"] = 1.5
    assert claim(changed, "Strongly convex", "noisy").holds is True


def test_theorem_two_holds_and_its_particular_case_does_not_converge(changed):
    assert claim(changed, "Theorem 2 bounds").holds is True
    assert claim(changed, "particular case").holds is False
    changed["records"]["theorem 2, bounds"]["bound"][0][0] = 1e-9
    assert claim(changed, "Theorem 2 bounds").holds is False
