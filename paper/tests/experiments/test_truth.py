"""Truth: its methods, scores and jobs, and a small run from end to end."""

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch

from csgmcmc.draws import MemoryDraws
from paper.experiments import find_experiments, reproduce
from paper.experiments.truth import (
    Truth,
    best_lrs,
    job_key,
    plans,
    reference_key,
    with_next_smaller,
)
from paper.experiments.truth_data import load
from paper.experiments.truth_networks import flat, stacked_weights, state_of_chain
from paper.experiments.truth_runs import (
    MEMBERS,
    METHODS,
    RUNS,
    SAMPLERS,
    Problem,
    make_sampler,
    run,
    start,
    temperature,
    train,
)
from paper.experiments.truth_scores import disagreement, scores, total_variation
from paper.pages import make_page
from paper.pages.truth import HMC
from paper.report.page import Grid, Picture

EXPERIMENT = Truth()
SMOKE = EXPERIMENT.presets["smoke"]
LAPTOP = EXPERIMENT.presets["laptop"]
SMALL = Problem("moons", (2, 4, 2), batch=20, weight_decay=1e-2)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smoke")
    reproduce(find_experiments()["truth"], "smoke", folder)
    return json.loads((folder / "truth.json").read_text())


# Runs


@pytest.mark.parametrize("case", [*LAPTOP.cases, *SMOKE.cases], ids=lambda case: case.problem.data)
def test_every_method_uses_the_budget_and_samplers_keep_as_many_draws(case):
    for plan in case.plans:
        for trained in RUNS:
            schedule = plan.schedule(trained)
            assert schedule.steps * MEMBERS.get(trained, 1) == plan.budget
            if trained in SAMPLERS or trained == "SWAG":
                assert schedule.total_draws * MEMBERS.get(trained, 1) == plan.draws
            table = schedule.table()
            assert table["collect"][-1]
    assert [plan.budget for plan in case.plans] == sorted({plan.budget for plan in case.plans})


def test_samplers_are_at_temperature_one_and_others_cold():
    (plan, *_), source = plans(100), load("moons")
    for trained in RUNS:
        weights = [w.requires_grad_() for w in stacked_weights(start(SMALL, [0]))]
        group = make_sampler(trained, weights, 0.1, 100, SMALL, plan).param_groups[0]
        assert group["temperature"] == (trained in SAMPLERS)
        assert group["num_data"] == len(source.train.inputs) == 100
        assert group["weight_decay"] == 1e-2


def test_training_is_sgd_with_momentum_on_every_chain():
    """One full batch: the order of its rows does not matter."""
    source, (plan, *_) = load("moons"), plans(12)
    models = start(SMALL, [0, 1])
    weights = [w.requires_grad_() for w in stacked_weights(models)]
    schedule = plan.schedule("SGDM")
    sampler = make_sampler("SGDM", weights, 0.1, 100, SMALL, plan)
    ticks = []
    train(weights, sampler, schedule, source.train, 100, seed=0, on_draw=ticks.append)
    assert [tick.step for tick in ticks] == [11]
    for chain, model in enumerate(models):
        velocity = [torch.zeros_like(p) for p in model.parameters()]
        for scale in schedule.table()["lr_scale"]:
            model.zero_grad()
            torch.nn.functional.cross_entropy(
                model(source.train.inputs), source.train.labels
            ).backward()
            with torch.no_grad():
                for v, p in zip(velocity, model.parameters(), strict=True):
                    assert p.grad is not None
                    v.mul_(0.9).sub_(0.1 * scale * (p.grad + 1e-2 * p))
                    p.add_(v)
        own = state_of_chain(weights, chain)
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(own[name], tensor, rtol=1e-3, atol=1e-5)


def test_seeds_of_a_method_differ_and_a_run_repeats_itself():
    (plan, *_), source = plans(40, sizes=[(2, 2)]), load("moons")
    one, again = (run("cSGHMC", SMALL, plan, source, 0.03, 2)["cSGHMC"] for _ in range(2))
    assert torch.equal(one[1][0]["test"], again[1][0]["test"])
    assert not torch.equal(one[0][0]["test"], one[1][0]["test"])
    assert one[0][1]["draws"] == 4
    for predicted, _ in one:
        for probs in predicted.values():
            torch.testing.assert_close(probs.sum(-1), torch.ones(len(probs)).double())


def test_temperature_of_weights_from_the_prior():
    """With a last layer of zeros the loss has no slope along the first layer, only the prior has.

    So its 12 weights of 22, drawn from the prior N(0, 1), have theta . grad U = theta^2: 1 on
    average, with a standard error of 0.016 for the mean over all weights; a false alarm is 6 of
    them.
    """
    torch.manual_seed(0)
    draws = MemoryDraws()
    (like,) = start(SMALL, [0])
    for step in range(200):
        state = {name: torch.randn(value.shape) for name, value in like.state_dict().items()}
        state["3.weight"], state["3.bias"] = torch.zeros(2, 4), torch.zeros(2)
        draws.append(state, step=step)
    assert temperature(draws, load("moons").train, 1e-2) == pytest.approx(12 / 22, abs=0.1)


# Scores


def test_distances_of_known_predictions():
    one, other = np.array([[1.0, 0.0], [0.4, 0.6]]), np.array([[0.5, 0.5], [0.6, 0.4]])
    assert total_variation(one, other) == pytest.approx((0.5 + 0.2) / 2)
    assert disagreement(one, other) == 0.5
    assert total_variation(one, one) == disagreement(one, one) == 0


def test_scores_of_the_reference_itself():
    source = load("moons")
    sure = {
        "validation": torch.eye(2)[source.validation.labels],
        "test": torch.eye(2)[source.test.labels],
        "outside": torch.full((len(source.outside), 2), 0.5),
    }
    found = scores(sure, sure, source)
    for score in ("tv", "validation_tv", "outside_disagreement", "error", "nll", "ece"):
        assert found[score] == 0
    unsure = {part: torch.full_like(own, 0.5) for part, own in sure.items()}
    found = scores(unsure, sure, source)
    assert found["tv"] == found["validation_tv"] == 0.5
    assert found["outside_tv"] == 0
    assert found["nll"] == found["validation_nll"] == pytest.approx(np.log(2), abs=1e-5)


# Jobs


def rows_of(lr, trained, distances):
    rows = [
        {"method": method, "seed": seed, "validation_tv": distances(method, lr)}
        for method in RUNS[trained]
        for seed in range(2)
    ]
    return {"lr": lr, "rows": rows}


def test_the_largest_budget_has_the_best_step_size_of_the_one_before_and_a_smaller_one():
    (case,) = SMOKE.cases
    done: dict[str, Any] = {}
    assert list(EXPERIMENT.jobs(SMOKE, done)) == [reference_key(case)]
    done[reference_key(case)] = {"probs": {}}

    def distances(method, lr):  # the larger is better, except for one of SGDM's three
        return lr if method == "Laplace, diagonal" else -lr

    first = EXPERIMENT.jobs(SMOKE, done)
    budgets = [plan.budget for plan in case.plans]
    for key, job in first.items():
        if "trained" in job:
            assert job["number"] == 0
            done[key] = rows_of(job["lr"], job["trained"], distances)
    partly = dict(list(done.items())[:-1])
    keys = [job_key(case, list(RUNS)[-1], budgets[1], lr) for lr in (0.03, 0.1)]
    assert not {*keys} & {*EXPERIMENT.jobs(SMOKE, partly)}  # its search is not finished
    further = {k: job for k, job in EXPERIMENT.jobs(SMOKE, done).items() if k not in done}
    lrs = {
        trained: sorted(job["lr"] for job in further.values() if job["trained"] == trained)
        for trained in RUNS
    }
    assert lrs.pop("SGDM") == [0.03, 0.1]
    assert lrs.pop("cPSGLD") == [0.003, 0.01]
    assert all(value == [0.03, 0.1] for value in lrs.values())
    assert with_next_smaller([0.1, 0.3, 0.01], [0.3, 0.01]) == [0.01, 0.1, 0.3]


def test_runs_that_diverged_are_not_chosen():
    records = [rows_of(0.1, "SWAG", lambda *_: 0.3), {"lr": 0.3, "rows": [], "diverged": "so"}]
    assert best_lrs(records) == {"SWAG": 0.1}


def test_a_step_size_that_is_too_large_is_recorded_as_diverged():
    (case,) = SMOKE.cases
    reference = {part: [[0.5, 0.5]] for part in ("validation", "test", "outside")}
    found = EXPERIMENT.run(
        SMOKE, None, place=0, trained="SWAG", number=0, lr=1e20, reference=reference
    )
    assert found["rows"] == []
    assert "not finite" in found["diverged"]
    assert found["budget"] == case.plans[0].budget


# The whole, and its page


def test_every_method_is_scored_at_every_budget(smoke):
    (case,) = SMOKE.cases
    found = {
        (record["budget"], row["method"], row["seed"])
        for record in smoke["records"].values()
        for row in record.get("rows", ())
    }
    budgets = [plan.budget for plan in case.plans]
    assert found == {(b, method, seed) for b in budgets for method in METHODS for seed in (0, 1)}
    reference = smoke["records"][reference_key(case)]
    assert 0 < reference["floor"]["test"]["tv"] < 0.2
    assert len(reference["probs"]["test"]) == 500
    assert {row["budget"] for row in reference["few"]} == set(budgets)


def test_the_page_shows_the_table_the_picture_and_claims(smoke):
    page = make_page(smoke)
    grids = [part for part in page.parts if isinstance(part, Grid)]
    assert [grid.title.partition(": ")[2] for grid in grids] == [
        *("the reference", "with and without cycles"),
        *("distance to HMC", "the search for step sizes"),
    ]
    pairs = ["SGHMC", "cSGHMC", "SGHMC, 4 chains", "cSGHMC, 4 chains", "SGLD", "cSGLD"]
    assert [row[0] for row in grids[1].rows] == pairs
    methods = [row[1] for row in grids[2].rows]
    assert methods == 2 * [HMC, *METHODS]
    assert [part.name for part in page.parts if isinstance(part, Picture)] == ["moons-distance"]
    assert len(page.claims) == 10


def change_scores(results, values):
    """Let the distance of each method be `values` of it and of the budget, all seeds alike."""
    found = copy.deepcopy(results)
    for record in found["records"].values():
        for row in record.get("rows", ()):
            value = values(row["method"], record["budget"]) + 0.001 * row["seed"] / record["budget"]
            for score in ("tv", "disagreement", "outside_tv", "validation_tv"):
                row[score] = value
    return found


@pytest.mark.parametrize("nearer", [True, False])
def test_claims_follow_the_numbers(smoke, nearer):
    def values(method, budget):
        if method == "cSGHMC":
            return 1 / budget if nearer else 0.5 + budget / 1000
        return 0.3

    first, *_, one, two, three, four = make_page(change_scores(smoke, values)).claims
    assert "cSGHMC is nearer to HMC than SGHMC at every number" in first.text
    claims = (first, one, two, three, four)
    said = {("2 of 2" in claim.ours or "1 of 1" in claim.ours) for claim in claims}
    assert said == {nearer}


def test_an_unfinished_run_has_a_page_without_claims(smoke):
    found = copy.deepcopy(smoke)
    (case,) = SMOKE.cases
    del found["records"][reference_key(case)]
    assert make_page(found).claims == []


def test_data_are_standardised_and_parts_differ():
    for name, classes in (("moons", 2), ("digits", 10)):
        source = load(name)
        assert source.train.inputs.mean().item() == pytest.approx(0, abs=1e-4)
        assert source.train.inputs.std().item() == pytest.approx(1, abs=0.05)
        assert set(source.test.labels.tolist()) == set(range(classes))
        assert source.outside.shape[1] == source.train.inputs.shape[1]
        assert not torch.equal(source.validation.inputs[:50], source.test.inputs[:50])


def test_the_starts_of_networks_are_those_of_their_seeds():
    one, other = (flat(stacked_weights(start(SMALL, seeds))) for seeds in ([3, 4], [4, 3]))
    assert torch.equal(one, other.flip(0))
