"""Pages of the experiments on CIFAR and ImageNet, from made-up records."""

import numpy as np
import pytest

from paper.pages import make_page
from paper.pages.deep_table import LITERAL, METHODS, MORE, SAME
from paper.report.compare import all_lower, gap, tally, verdict
from paper.report.page import Grid, Picture

NETWORK = {
    "kind": "resnet8", "width": 8, "batch": 64, "weight_decay": 5e-4, "momentum": 0.1,
    "sgdm_momentum": 0.9,
}  # fmt: skip
PAPERS_ORDER = {
    **dict.fromkeys(("SGD", "SGDM"), 0.30),
    **dict.fromkeys(("SGLD", "SGHMC"), 0.29),
    **dict.fromkeys(("Snapshot-SGD", "Snapshot-SGDM"), 0.25),
    **dict.fromkeys(("cSGLD", "cSGHMC"), 0.22),
    SAME: 0.26,
    MORE: 0.15,
}


def setting(source="cifar10", **changes):
    return {
        "source": source, "network": NETWORK, "epochs": 20, "cycles": 4, "exploration": 0.8,
        "searched": [0.1, 0.2], "held_out": 2000, "search_epochs": 5, **changes,
    }  # fmt: skip


def scores(error, tested=5000, **changes):
    return {
        "draws": 12, "tested": tested, "error": error, "nll": 3 * error, "nll_error": 0.005,
        "ece": 0.02, "single_error": error + 0.03, **changes,
    }  # fmt: skip


def results(experiment, records, **config):
    return {
        "experiment": experiment,
        "config": {"seeds": 3, "settings": [setting()], **config},
        "records": {str(number): record for number, record in enumerate(records)},
    }


def chain(method, seed, error, **changes):
    return {
        "part": "chain", "source": "cifar10", "method": method, "seed": seed, "lr": 0.2,
        "epochs": 20, "temperature": "1/N", "scores": scores(error), **changes,
    }  # fmt: skip


def group(**changes):
    return {"part": "group", "source": "cifar10", "seed": 0, "chains": 4, **changes}


def table_of(page, part):
    return next(one for one in page.parts if isinstance(one, Grid) and part in one.title)


# Comparisons


def test_differences_are_seed_by_seed_or_by_the_number_of_test_points():
    made = {
        "a": {0: scores(0.2), 1: scores(0.3)},
        "b": {0: scores(0.25), 1: scores(0.37), 2: scores(0.9)},
        "c": {0: scores(0.4)},
    }
    assert gap(made, "error", "a", "b") == pytest.approx((0.06, 0.01))
    expected = (0.2 * 0.8 / 5000 + 0.4 * 0.6 / 5000) ** 0.5
    assert gap(made, "error", "a", "c") == pytest.approx((0.2, expected))
    assert gap(made, "nll", "a", "c") == pytest.approx((0.6, 0.005 * 2**0.5))
    assert gap(made, "error", "a", "d") == (0.0, float("inf"))


@pytest.mark.parametrize(
    ("low", "high", "held"),
    [(0.20, 0.24, True), (0.24, 0.20, False), (0.2, 0.2, None), (0.20, 0.21, None)],
)
def test_a_claim_needs_two_standard_errors(low, high, held):
    """Of 5000 points at an error of 0.2, the standard error of a difference is 0.008."""
    claim = all_lower(
        "x", "", {"a": {0: scores(low)}, "b": {0: scores(high)}}, "error", [("a", "b")]
    )
    assert claim.holds is held
    assert ("a is" in claim.ours) is (held is not True)
    assert all_lower("x", "", {}, "error", [("a", "b")]).holds is None


@pytest.mark.parametrize(
    ("outcomes", "expected", "words"),
    [
        ([True], True, "1 of 1 comparisons hold"),
        ([False], False, "0 of 1 comparisons hold, 1 contradicted"),
        ([None], None, "0 of 1 comparisons hold, 1 undecided"),
        ([True] * 5 + [False], True, "5 of 6 comparisons hold, 1 contradicted"),
        ([True] * 4 + [False] + [None], True, "4 of 6 comparisons hold, 1 contradicted, 1 "),
        ([True] * 4 + [False] * 2, None, "4 of 6 comparisons hold, 2 contradicted"),
        ([True] * 3 + [None] * 3, None, "3 of 6 comparisons hold, 3 undecided"),
        ([False] * 5 + [True], False, "1 of 6 comparisons hold, 5 contradicted"),
        ([], None, "0 of 0 comparisons hold"),
    ],
)
def test_a_claim_of_many_comparisons(outcomes, expected, words):
    assert verdict(outcomes) is expected
    assert tally(outcomes).startswith(words)


# Table 1


def table_records(errors, seeds=3, source="cifar10"):
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        for method in METHODS:
            for label in ("1/N", LITERAL) if "L" in method or "H" in method else ("0",):
                error = errors[method] + 0.002 * rng.standard_normal()
                yield chain(method, seed, error, temperature=label, source=source)
        for label in (SAME, MORE):
            yield group(method=label, seed=seed, source=source, scores=scores(errors[label]))
    yield chain("SGDM", 7, 0.99, source=source)  # a network of an ensemble is in no row
    yield chain("SGDM", 0, 0.99, epochs=5, source=source)
    for lr, loss in ((0.1, 0.9), (0.2, None)):
        yield {
            "part": "search", "source": source, "method": "SGD", "lr": lr, "seed": 0,
            "epochs": 5, "validation_nll": loss,
        }  # fmt: skip


def test_table_one():
    page = make_page(results("cifar", table_records(PAPERS_ORDER)))
    assert [claim.holds for claim in page.claims] == [True] * 10
    table = table_of(page, "test data")
    assert [row[0] for row in table.rows] == [
        *METHODS,
        *(f"{method} at {LITERAL}" for method in ("SGLD", "SGHMC", "cSGLD", "cSGHMC")),
        SAME,
        MORE,
    ]
    assert all(len(row) == len(table.header) for row in table.rows)
    assert table.rows[0][6] == "5.29 ± 0.15"
    assert float(table.rows[0][7].split()[0]) == pytest.approx(30, abs=0.5)
    assert table.rows[-1][3] == "80"
    search = table_of(page, "search")
    assert search.rows == [["SGD", "0.1: 0.9000, 0.2: diverged", "0.1", "yes"]]
    [gains] = [part for part in page.parts if isinstance(part, str) and "averaging wins" in part]
    assert "a cycle of 5 epochs" in gains
    [picture] = [part for part in page.parts if isinstance(part, Picture)]
    assert picture.name == "cifar10-methods"
    labels = [tick.get_text() for tick in picture.figure.axes[0].get_yticklabels()]
    assert labels == [*METHODS, SAME, MORE]


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        # Of each pair of comparisons, one is contradicted and the other holds.
        ({"cSGLD": 0.26}, {1: None, 4: None}),  # Snapshot-SGD is better
        ({"cSGLD": 0.26, "cSGHMC": 0.265}, {1: False, 4: False, 8: False, 9: False}),
        ({"SGHMC": 0.32}, {7: None}),  # SGDM is better
        ({SAME: 0.2}, {8: False, 9: False}),
    ],
)
def test_each_claim_of_table_one_can_fail(changed, held):
    page = make_page(results("cifar", table_records({**PAPERS_ORDER, **changed})))
    found = dict(enumerate(claim.holds for claim in page.claims))
    assert found == {**dict.fromkeys(range(10), True), **held}


def test_two_data_sets_and_one_seed():
    records = [
        *table_records(PAPERS_ORDER),
        *table_records(PAPERS_ORDER, seeds=1, source="cifar100"),
    ]
    found = results("cifar", records, settings=[setting(), setting("cifar100")])
    page = make_page(found)
    assert len(page.claims) == 20
    found = [claim.holds for claim in page.claims[10:]]
    assert found == [True] * 7 + [None] + [True] * 2  # 1 point of 30
    assert table_of(page, "CIFAR-100: test").rows[0][5] == "1"
    assert make_page(results("cifar", [])).claims == []


def test_a_run_that_diverged_is_not_judged():
    records = [
        {**record, "scores": None} if record.get("method") == "cSGLD" else record
        for record in table_records(PAPERS_ORDER)
    ]
    page = make_page(results("cifar", records))
    assert [claim.holds for claim in page.claims] == [None] * 6 + [True] * 4
    assert "cSGLD" not in [row[0] for row in table_of(page, "test data").rows]


# The other tables


def test_parallel_chains():
    def records(single):
        errors = {
            "cyclical, parallel": 0.20,
            "decreasing, parallel": 0.24,
            "decreasing, parallel, half": 0.28,
            "cyclical, single": single,
        }
        return [
            group(kind=kind, column=column, epochs=20, scores=scores(error))
            for kind in ("SGLD", "SGHMC")
            for column, error in errors.items()
        ]

    page = make_page(results("cifar-parallel", records(0.22)))
    assert [claim.holds for claim in page.claims] == [True, True]
    table = table_of(page, "chains and cycles")
    assert len(table.rows) == 8
    assert table.rows[0][2:5] == ["20 / 80", "4.09", "20.00"]
    page = make_page(results("cifar-parallel", records(0.28)))
    assert [claim.holds for claim in page.claims] == [True, None]
    page = make_page(results("cifar-parallel", records(0.32)))
    assert [claim.holds for claim in page.claims] == [True, False]


def test_sensitivity():
    def records(worst):
        return [
            group(method=method, cycles=cycles, exploration=0.8, scores=scores(error))
            for cycles, low in ((2, 0.2), (5, worst))
            for method, error in (("cSGLD", low), ("parallel SGLD", 0.3))
        ]

    pairs = [[2, 0.8], [5, 0.8]]
    page = make_page(results("cifar-sensitivity", records(0.25), pairs=pairs))
    assert [claim.holds for claim in page.claims] == [True]
    rows = table_of(page, "cycles").rows
    assert rows[0][:5] == ["cSGLD", "2", "0.8", "4.27", "20.00"]
    page = make_page(results("cifar-sensitivity", records(0.31), pairs=pairs))
    assert page.claims[0].holds is None
    assert "1 of 2 comparisons hold, 1 undecided" in page.claims[0].ours


def test_tempering():
    def records(cold):
        errors = {"1": 0.4, "0.1": 0.2, "0.01": 0.21, "0": cold}
        return [chain("cSGLD", 0, error, temperature=label) for label, error in errors.items()]

    page = make_page(results("cifar-tempering", records(0.25)))
    assert [claim.holds for claim in page.claims] == [True] * 4
    assert "0.1 20.00" in page.claims[2].ours
    assert [row[1] for row in table_of(page, "temperature").rows] == ["1", "0.1", "0.01", "0"]
    page = make_page(results("cifar-tempering", records(0.201)))
    assert [claim.holds for claim in page.claims] == [True, None, True, None]


def test_the_temperature_is_chosen_on_validation_data():
    errors = {"1": 0.4, "0.1": 0.2, "0.01": 0.21, "0": 0.25}
    validation = {"1": 0.4, "0.1": 0.3, "0.01": 0.2, "0": 0.25}  # which prefers 0.01
    records = [
        chain("cSGLD", 0, error, temperature=label, exploration=beta,
              validation=scores(validation[label]))
        for label, error in errors.items()
        for beta in (0.5, 0.8)
    ]  # fmt: skip
    page = make_page(results("mnist-tempering", records))
    assert len(page.claims) == 8
    assert all("between 0 and 1, 0.01, is lower" in claim.text for claim in page.claims)
    assert "β=0.5" in page.claims[0].text
    assert page.title == "MNIST, cycles that converge: tempering"
    rows = table_of(page, "temperature").rows
    assert rows[1][:4] == ["0.5", "0.1", "0.32", "12"]


def test_temperatures_that_diverge_are_named():
    records = [chain("cSGLD", 0, 0.2, temperature=label) for label in ("1", "0.1", "0")]
    records.append({**chain("cSGLD", 1, 0.2, temperature="1"), "scores": None})
    note = table_of(make_page(results("mnist-tempering", records)), "temperature").note
    assert "Diverged, and not in the table: T=1, β=0 in 1 of 2 seeds." in note


def test_noise_is_judged_by_the_chains_that_have_not_diverged():
    errors = {"late": 0.2, "rising": 0.25, "always": 0.3}
    records = [
        chain(method, seed, error + seed / 100, temperature=temperature, noise=noise)
        for method in ("SGLD", "cSGLD")
        for temperature in ("0.0045", "1")
        for noise, error in errors.items()
        for seed in range(2)
        if method == "cSGLD" or noise != "rising"
    ]
    for record in records:
        if record["temperature"] == "1" and record["noise"] == "always":
            record["scores"] = None
    page = make_page(results("mnist-stages", records, temperatures=["0.0045", "1"]))
    assert [claim.holds for claim in page.claims] == [True, False]
    assert "2 of 2 comparisons hold" in page.claims[0].ours
    assert "2 contradicted" in page.claims[1].ours
    note = table_of(page, "noise and step").note
    assert "SGLD at 1, noise from the first step in 2 of 2 seeds" in note


def diversity(barrier=0.2, between=10.0, cyclical=(0.3, 0.25), single=0.31):
    def functions(errors, alone):
        return {
            "tested": 200_000, "single_errors": [alone, alone], "error_by_cycles": list(errors),
            "disagreement_within": None, "disagreement_between": 0.2, "nll": 1.2,
        }  # fmt: skip

    def lines(height):
        return [
            {"error": [0.3, 0.3 + height + small, 0.3], "barrier": height + small}
            for small in (0.0, 0.01)
        ]

    return group(
        family="SGLD",
        weights={
            "places": [[0, 0], [1, 0], [0, 1]], "cycles": [0, 1, None], "within_cycles": 1.0,
            "between_cycles": between, "traditional": 2.0,
        },
        lines={"cyclical": lines(barrier), "traditional": lines(0.001)},
        functions={
            "cSGLD": functions(cyclical, single),
            "Snapshot-SGD": functions((0.31, 0.28), 0.31),
            "SGLD": functions((0.29,), 0.30),
        },
    )  # fmt: skip


def test_diversity():
    page = make_page(results("cifar-diversity", [diversity()]))
    assert [claim.holds for claim in page.claims] == [True] * 4
    [picture] = [part for part in page.parts if isinstance(part, Picture)]
    places, lines, cycles = picture.figure.axes
    assert [len(axes.lines) for axes in (places, lines, cycles)] == [3, 4, 2]
    table = table_of(page, "functions")
    assert table.rows[0] == ["cSGLD", "0", "2", "31.00", "25.00", "1.2000", "-", "-", "20.00"]


@pytest.mark.parametrize(
    ("changed", "place", "holds"),
    [
        ({"between": 3.9}, 0, False),
        ({"barrier": 0.002}, 1, None),
        ({"barrier": -0.1}, 1, False),
        ({"cyclical": (0.32, 0.29)}, 2, None),
        ({"cyclical": (0.32, 0.33)}, 2, None),  # Snapshot still gains by its cycles
        ({"single": 0.29}, 3, None),
        ({"single": 0.29, "cyclical": (0.3, 0.3)}, 3, False),
    ],
)
def test_each_claim_of_diversity_can_fail(changed, place, holds):
    page = make_page(results("cifar-diversity", [diversity(**changed)]))
    assert page.claims[place].holds is holds


def test_differences_of_draws_need_two_standard_errors():
    few = diversity()
    for found in few["functions"].values():
        found["tested"] = 500
    page = make_page(results("cifar-diversity", [few]))
    assert [claim.holds for claim in page.claims] == [True, True, None, None]


def test_imagenet():
    def records(best):
        errors = {"SGDM": 0.3, "Snapshot-SGDM": 0.29, "SGHMC": 0.3, "cSGHMC": best}
        return [
            {
                "method": method,
                "seed": 0,
                "scores": scores(error, tested=50_000, top1_error=error, top5_error=error / 3),
            }
            for method, error in errors.items()
        ]

    network = {"kind": "tiny", "batch": 8}
    config = {"network": network, "size": 32, "epochs": 3, "cycles": 3}
    page = make_page(results("imagenet", records(0.25), **config))
    assert [claim.holds for claim in page.claims] == [True, True]
    rows = table_of(page, "Validation").rows
    assert rows[3] == ["cSGHMC", "12", "0.8882", "0.7500", "22.89", "25.00", "6.48", "8.33"]
    page = make_page(results("imagenet", records(0.32), **config))
    assert [claim.holds for claim in page.claims] == [False, False]
    assert make_page(results("imagenet", [], **config)).claims == []
