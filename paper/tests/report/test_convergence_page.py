import copy
import json

import pytest

from paper.experiments import reproduce
from paper.experiments.convergence import Convergence
from paper.pages import make_page
from paper.report.page import Grid, Picture


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


FAMILIES = ("rates, fixed number of cycles", "rates, fixed length of cycles")


def with_mse(results, key, steps, mse):
    """Make the MSE what `mse` says of alpha_0 and K."""
    record = results["records"][key]
    record["K"] = steps
    for average in ("weighted", "plain"):
        record[average]["mse"] = [[mse(alpha0, k) for k in steps] for alpha0 in record["alpha0"]]


def test_a_rate_is_refuted_by_a_ratio_that_goes_on_growing(changed):
    steps = [100, 1_000, 10_000, 100_000, 1_000_000]
    for key in FAMILIES:  # constants far apart: the exponent looks worse in between
        with_mse(changed, key, steps, lambda a, k: 9 / (a * k) + 0.1 * a**2)
        slopes = changed["records"][key]["weighted"]["slopes"]
        slopes["mse_alpha0"] = {"slope": 1.5, "points": 3, "from": 1.0, "to": 9.0, "at": 0.1}
        slopes["mse_K"] = None
    found = claim(changed, "MSE", "weighted")
    assert found.holds is True
    assert "(fitted K nowhere dominant, α₀^1.50)" in found.ours
    with_mse(changed, FAMILIES[1], steps, lambda a, k: (a * k) ** (-2 / 3))
    found = claim(changed, "MSE", "weighted")
    assert found.holds is False
    # At the least alpha_0 of the preset: 0.01 to 0.2, K from 10^4 to 10^6.
    ratios = [(0.01 * k) ** (-2 / 3) / (1 / (0.01 * k) + 0.01**2) for k in (10**4, 10**6)]
    assert f"{(ratios[1] / ratios[0]) ** 0.5:.2f} times a decade" in found.ours


def test_a_rate_is_not_judged_on_a_short_range_of_steps(changed):
    found = claim(changed, "MSE", "weighted")
    assert found.holds is None
    assert "too short a range of K" in found.ours
    steps = [100, 1_000, 10_000, 100_000, 1_000_000]
    with_mse(changed, FAMILIES[0], steps, lambda a, k: (a * k) ** (-2 / 3))
    assert claim(changed, "MSE", "weighted").holds is False  # one way to let K grow is enough


def test_nearer_is_judged_by_the_steps_of_the_appendix(changed):
    methods = changed["records"]["distance, K=400, alpha0=0.05"]["methods"]
    for name, row in methods.items():
        row["end"] = 0.1 if name == "cyclical" else 0.2
        row["last_quarter_mean"] = 0.5 if name == "cyclical" else 0.4
    found = claim(changed, "Gaussian", "equal sum")
    assert found.holds is True
    assert "k^-1: nearer in 1 of 1 at step K (W₂ 0.5 times theirs" in found.ours
    assert "in 0 by the mean of the last quarter" in found.ours
    assert found.paper == "a faster convergence rate"
    methods["constant, equal sum"]["end"] = 0.05  # its steps do not decrease
    methods["k^-0.55, equal sum"]["end"] = 0.05  # the appendix does not analyse it
    found = claim(changed, "Gaussian", "equal sum")
    assert found.holds is True
    assert "not compared in the paper: k^-0.55: nearer in 0 of 1" in found.ours
    methods["k^-1, equal sum"]["end"] = 0.05
    assert claim(changed, "Gaussian", "equal sum").holds is False
    assert claim(changed, "Gaussian", "h₀ = α₀").holds is True
    assert "less error" in claim(changed, "Gaussian", "h₀ = α₀").paper


def test_the_note_and_the_caption_say_what_the_record_has(changed):
    methods = changed["records"]["distance, K=400, alpha0=0.05"]["methods"]
    methods["k^-1, equal sum"].update(worst=1e6, end=0.0123)
    methods["k^-0.55, equal sum"]["worst"] = 3.0
    methods["k^-1, equal first step"]["end"] = 3.21
    grid = next(
        part
        for part in make_page(changed).parts
        if isinstance(part, Grid) and part.title.startswith("W₂ to a Gaussian")
    )
    assert "k^-1 in 1 of 1 runs, back to at most 0.012 by K; k^-0.55 in 0 of 1 runs." in grid.note
    assert "3.21 to 3.21 for k^-1" in grid.note
    picture = next(
        part
        for part in make_page(changed).parts
        if isinstance(part, Picture) and part.name == "convergence-distance"
    )
    assert "k^-1, equal sum 0.012" in picture.caption


def test_convergence_is_of_the_ends_of_cycles(changed):
    for key in FAMILIES:
        fit = {"slope": -0.6 if "number" in key else 0.9}
        changed["records"][key].update(w2_slope_K=fit, w2_slope_alpha0=fit)
        changed["records"][key]["w2_worst"][-1] = [0.111, 0.2, 0.2, 0.2, 0.222]
    found = claim(changed, "At the end of a cycle")
    assert found.holds is True
    assert "is 0.111 for K = 100 and 0.222 for 1,600" in found.ours
    changed["records"][FAMILIES[0]]["w2_slope_K"] = {"slope": 0.0}
    assert claim(changed, "At the end of a cycle").holds is False


def test_nearer_at_some_numbers_of_steps_alone_is_contradicted(changed):
    for count, end in ((400, 0.2), (800, 0.05)):
        record = copy.deepcopy(changed["records"]["distance, K=400, alpha0=0.05"])
        for name, row in record["methods"].items():
            row["end"] = 0.1 if name == "cyclical" else end
        changed["records"][f"distance, K={count}, alpha0=0.05"] = record
    found = claim(changed, "Gaussian", "equal sum")
    assert found.holds is False
    assert found.ours.startswith("1 of 2 comparisons hold: k^-1: nearer in 1 of 2")


def test_wells_are_compared_seed_by_seed(changed):
    for seed in range(2):
        for name, w2 in (("cyclical", 0.1), ("k^-1, equal sum", 0.11)):
            changed["records"][f"double well, {name}, seed {seed}"]["w2"][-1] = w2 + seed
    assert claim(changed, "Double well", "equal sum").holds is True


def test_the_page_says_which_bound_of_theorem_two_is_tried_and_on_what(results):
    found = claim(results, "Theorem 2 bounds")
    assert "convex" in found.text
    assert "6 + C₂Kα₀/2 in the theorem, 12 + C₂Kα₀/2 in its proof" in found.paper


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
        changed["records"][f"double well, k^-0.55, equal sum, seed {seed}"]["w2"][-1] = 0.05
    assert claim(changed, "Double well", "equal sum").holds is True  # shown, but not judged by
    assert "k^-0.55: 0.050 ± 0.000" in claim(changed, "Double well", "equal sum").ours
    for seed in range(2):
        record = changed["records"][f"double well, k^-1, equal sum, seed {seed}"]
        record["w2"][-1] = 0.1 + 0.2 * seed  # a mean of 0.2, and an error as large as the gap
    found = claim(changed, "Double well", "equal sum")
    assert found.holds is None
    assert found.ours.startswith("0 of 1 comparisons hold, 1 undecided: W₂ cSGLD")
    for seed in range(2):
        changed["records"][f"double well, k^-1, equal sum, seed {seed}"]["w2"][-1] = 0.05
    assert claim(changed, "Double well", "equal sum").holds is False


def test_the_appendix_is_judged_by_its_least_ratio(changed):
    assert claim(changed, "Strongly convex", "exact").holds is True
    assert claim(changed, "Strongly convex", "noisy").holds is False
    for row in changed["records"]["strongly convex"]["rows"]:
        row["stated_least_ratio"] = 1.5
    assert claim(changed, "Strongly convex", "noisy").holds is True


def test_theorem_two_holds_and_keeps_its_constant(changed):
    assert claim(changed, "Theorem 2 bounds").holds is True
    assert claim(changed, "keeps the constant C₃").holds is True
    last = changed["records"]["theorem 2, vanishing steps"]["rows"][-1]
    last["w2"] = 0.1
    assert claim(changed, "keeps the constant C₃").holds is False
    changed["records"]["theorem 2, bounds"]["bound"][0][0] = 1e-9
    assert claim(changed, "Theorem 2 bounds").holds is False
