"""Pages of the experiments on CIFAR and ImageNet, from made-up records."""

import numpy as np
import pytest

from paper.pages import make_page
from paper.pages.deep_table import LITERAL, METHODS, MORE, SAME
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


def several(make, seeds=4):
    """Records of several seeds, from a function of one, with a little noise in every error."""
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        for record in make():
            error = record["scores"]["error"] + 0.001 * rng.standard_normal()
            own = {**record["scores"], **scores(error), "top1_error": error}
            yield {**record, "seed": seed, "scores": own}


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
        "SGDM, one cycle, step size 0.2",
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
        ({"cSGLD": 0.26}, {1: False, 4: False}),  # Snapshot-SGD is better
        ({"cSGLD": 0.26, "cSGHMC": 0.27}, {1: False, 4: False, 8: False, 9: False}),
        ({"SGHMC": 0.32}, {7: False}),  # SGDM is better
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
    assert found == [None] * 10
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
        return several(
            lambda: (
                group(kind=kind, column=column, epochs=20, scores=scores(error))
                for kind in ("SGLD", "SGHMC")
                for column, error in errors.items()
            )
        )

    page = make_page(results("cifar-parallel", records(0.22)))
    assert [claim.holds for claim in page.claims] == [True, True]
    table = table_of(page, "chains and cycles")
    assert len(table.rows) == 8
    assert table.rows[0][2:4] == ["20 / 80", "4.09"]
    assert float(table.rows[0][4].split()[0]) == pytest.approx(20, abs=0.1)
    page = make_page(results("cifar-parallel", records(0.28)))
    assert [claim.holds for claim in page.claims] == [True, None]
    page = make_page(results("cifar-parallel", records(0.32)))
    assert [claim.holds for claim in page.claims] == [True, False]


def test_sensitivity():
    def records(worst):
        return several(
            lambda: (
                group(method=method, cycles=cycles, exploration=0.8, scores=scores(error))
                for cycles, low in ((2, 0.2), (5, worst))
                for method, error in (("cSGLD", low), ("parallel SGLD", 0.3))
            )
        )

    pairs = [[2, 0.8], [5, 0.8]]
    page = make_page(results("cifar-sensitivity", records(0.25), pairs=pairs))
    assert [claim.holds for claim in page.claims] == [True]
    rows = table_of(page, "cycles").rows
    assert rows[0][:4] == ["cSGLD", "2", "0.8", "4.27"]
    page = make_page(results("cifar-sensitivity", records(0.3), pairs=pairs))
    assert page.claims[0].holds is None
    assert "1 of 2 comparisons hold, 1 undecided" in page.claims[0].ours


def test_tempering():
    def records(cold):
        errors = {"1": 0.4, "0.1": 0.2, "0.01": 0.21, "0": cold}
        return several(
            lambda: (chain("cSGLD", 0, error, temperature=label) for label, error in errors.items())
        )

    page = make_page(results("cifar-tempering", records(0.25)))
    assert [claim.holds for claim in page.claims] == [True] * 4
    assert "0.1 20.0" in page.claims[2].ours or "0.1 19.9" in page.claims[2].ours
    assert [row[1] for row in table_of(page, "temperature").rows] == ["1", "0.1", "0.01", "0"]
    page = make_page(results("cifar-tempering", records(0.2)))
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


def diversity(seed=0, barrier=0.2, between=10.0, cyclical=(0.3, 0.25), single=0.31):
    noise = 0.0005 * np.random.default_rng(seed).standard_normal(20)
    places = iter(noise)

    def functions(errors, alone):
        return {
            "tested": 5000, "single_errors": [alone + next(places)] * 2,
            "error_by_cycles": [error + next(places) for error in errors],
            "disagreement_within": None, "disagreement_between": 0.2, "nll": 1.2,
        }  # fmt: skip

    def lines(height):
        height += next(places)
        return [
            {"error": [0.3, 0.3 + height + small, 0.3], "barrier": height + small}
            for small in (0.0, 0.01)
        ]

    return group(
        seed=seed,
        family="SGLD",
        weights={
            "places": [[0, 0], [1, 0], [0, 1]], "cycles": [0, 1, None], "within_cycles": 1.0,
            "between_cycles": between + next(places), "traditional": 2.0,
        },
        lines={"cyclical": lines(barrier), "traditional": lines(0.001)},
        functions={
            "cSGLD": functions(cyclical, single),
            "Snapshot-SGD": functions((0.31, 0.28), 0.31),
            "SGLD": functions((0.29,), 0.30),
        },
    )  # fmt: skip


def diversities(seeds=4, **changed):
    return results("cifar-diversity", [diversity(seed, **changed) for seed in range(seeds)])


def test_diversity():
    page = make_page(diversities())
    assert [claim.holds for claim in page.claims] == [True] * 4
    [picture] = [part for part in page.parts if isinstance(part, Picture)]
    places, lines, cycles = picture.figure.axes
    assert [len(axes.lines) for axes in (places, lines, cycles)] == [3, 4, 2]
    table = table_of(page, "functions")
    assert table.rows[0][:3] == ["cSGLD", "0", "2"]
    assert table.rows[0][5:] == ["1.2000", "-", "-", "20.00"]
    one_seed = make_page(diversities(seeds=1))
    assert [claim.holds for claim in one_seed.claims] == [None] * 4


@pytest.mark.parametrize(
    ("changed", "place", "holds"),
    [
        ({"between": 3.9}, 0, False),
        ({"barrier": 0.001}, 1, None),
        ({"barrier": -0.1}, 1, False),
        ({"cyclical": (0.32, 0.28)}, 2, False),
        ({"cyclical": (0.3, 0.28)}, 2, None),
        ({"single": 0.30}, 3, None),
        ({"single": 0.29}, 3, False),
    ],
)
def test_each_claim_of_diversity_can_fail(changed, place, holds):
    assert make_page(diversities(**changed)).claims[place].holds is holds


def test_imagenet():
    def records(best):
        errors = {"SGDM": 0.3, "Snapshot-SGDM": 0.29, "SGHMC": 0.3, "cSGHMC": best}
        return several(
            lambda: (
                {"method": method, "train": 1200, "scores": scores(error, top5_error=error / 3)}
                for method, error in errors.items()
            )
        )

    network = {"kind": "tiny", "batch": 8}
    config = {"network": network, "size": 32, "epochs": 3, "cycles": 3}
    page = make_page(results("imagenet", records(0.25), **config))
    assert [claim.holds for claim in page.claims] == [True, True]
    row = table_of(page, "Validation").rows[3]
    assert [row[place] for place in (0, 1, 2, 4, 6)] == ["cSGHMC", "12", "0.8882", "22.89", "6.48"]
    page = make_page(results("imagenet", records(0.32), **config))
    assert [claim.holds for claim in page.claims] == [False, False]
    assert make_page(results("imagenet", [], **config)).claims == []


def test_a_slice_is_not_called_imagenet():
    found = scores(0.3, top1_error=0.3, top5_error=0.1)
    record = {"method": "SGDM", "seed": 0, "train": 1200, "scores": found}
    config = {"network": {"kind": "tiny", "batch": 8}, "size": 32, "epochs": 3, "cycles": 3}
    page = make_page({**results("imagenet", [record], **config), "preset": "laptop"})
    assert page.title == "20 classes of Tiny ImageNet: four methods"
    assert not any("On ImageNet" in claim.text for claim in page.claims)
    page = make_page({**results("imagenet", [record], **config), "preset": "paper"})
    assert page.title == "ImageNet: four methods"


def test_the_baseline_is_the_better_of_its_lengths():
    """By validation NLL: SGD overfits here, SGDM does not."""

    def records():
        for seed in range(4):
            for method in METHODS:
                error = PAPERS_ORDER[method] + 0.001 * seed
                yield chain(method, seed, error, validation={"nll": 1.0})
            yield chain("SGD", seed, 0.2, epochs=5, validation={"nll": 0.9})
            yield chain("SGDM", seed, 0.2, epochs=5, validation={"nll": 1.1})
            yield chain("SGD", seed + 7, 0.1, epochs=5, validation={"nll": 0.1})  # of an ensemble

    claim, *_ = make_page(results("cifar", records())).claims
    assert "SGD, one cycle, step size 0.2 20.00" in claim.ours
    assert "SGDM 30" in claim.ours
    assert claim.holds is False
