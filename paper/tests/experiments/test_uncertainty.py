"""Uncertainty: what its runs are made of, and a small run from end to end."""

import math
import urllib.request

import numpy as np
import pytest
import torch
from torch import nn

from csgmcmc.draws import MemoryDraws
from csgmcmc.posterior import Posterior
from csgmcmc.samplers import SGLD
from paper.experiments import find_experiments, reproduce
from paper.experiments import uncertainty as module
from paper.experiments.uncertainty import BY_NAME, Source, Uncertainty, UncertaintyDigits, load
from paper.experiments.uncertainty_methods import (
    GAMMA,
    METHODS,
    Batches,
    Fork,
    Network,
    Plan,
    Points,
    Run,
    scores,
    shared_start,
)
from paper.networks import mlp

EXPERIMENT = Uncertainty()
SMOKE = EXPERIMENT.presets["smoke"]
TINY = Network((6, 5, 10), batch=4, momentum=0.5, weight_decay=1e-3)


def some_points(count: int = 22) -> Points:
    generator = torch.Generator().manual_seed(0)
    return Points(
        torch.randn(count, 6, generator=generator),
        torch.randint(10, (count,), generator=generator),
    )


# Schedules


def test_all_methods_have_the_same_steps_and_samplers_the_same_draws():
    plan = Plan(epochs=56, burn_in=50)
    found = {method.name: plan.schedule(method, 30) for method in METHODS}
    assert {schedule.steps for schedule in found.values()} == {56 * 30}
    assert {name: schedule.total_draws for name, schedule in found.items()} == {
        **dict.fromkeys(("SGD", "SGDM"), 1),
        **dict.fromkeys(("Snapshot-SGD", "Snapshot-SGDM"), 4),
        **dict.fromkeys(("SGLD", "SGHMC", "cSGLD", "cSGHMC"), 12),
    }


@pytest.mark.parametrize("preset", ["paper", "laptop", "smoke"])
@pytest.mark.parametrize("experiment", [Uncertainty, UncertaintyDigits])
def test_every_preset_has_epochs_enough_for_its_draws(experiment, preset):
    config = experiment.presets[preset]
    assert experiment is Uncertainty or config.source == "digits"
    size, held_out = {"mnist": (60_000, 10_000), "digits": (1300, 300)}[config.source]
    for plan, data in (
        (config.plan, size),
        (config.tuned_plan, size),
        (config.search_plan, size - held_out),
    ):
        for method in METHODS:
            schedule = plan.schedule(method, data // config.network.batch)  # which checks it
            if method.hot:
                assert schedule.total_draws == plan.cycles * plan.draws_per_cycle


@pytest.mark.parametrize(("epochs", "draws"), [(6, 12), (5, 12), (24, 12)])
def test_traditional_samplers_decay_by_the_epoch_after_a_burn_in_without_noise(epochs, draws):
    table = Plan(epochs=10 + epochs, burn_in=10).schedule(BY_NAME["SGLD"], 30).table()
    assert (table["lr_scale"][:300] == 1).all()
    assert (table["temperature_scale"] == np.repeat([0, 1], [300, 30 * epochs])).all()
    decay = np.repeat(np.arange(1, epochs + 1) ** -0.5005, 30)
    assert table["lr_scale"][300:] == pytest.approx(decay)
    assert table["collect"][:300].sum() == 0
    assert table["collect"].sum() == draws
    assert table["collect"][-1]


def test_a_decay_in_steps_would_be_half_an_epoch_at_the_full_step_size():
    epoch = 60_000 // 64
    decay = np.arange(1, 56 * epoch - 50 + 1) ** -GAMMA
    assert decay.sum() / epoch == pytest.approx(0.5, abs=0.02)
    assert decay[epoch - 1] == pytest.approx(1 / 30, rel=0.05)


def test_shared_steps_are_the_same_for_all_that_share_them_and_the_next_is_not():
    plan = Plan(epochs=8, burn_in=6)
    for cyclical in (True, False):
        names = ("Snapshot-SGD", "cSGLD") if cyclical else ("SGD", "SGLD")
        tables = [plan.schedule(BY_NAME[name], 10).table() for name in names]
        shared = plan.shared_steps(cyclical=cyclical, epoch=10)
        assert 0 < shared < 80
        one, other = (table["lr_scale"][:shared] for table in tables)
        assert (one == other).all()
        assert not any(table["collect"][:shared].any() for table in tables)
        hot = tables[1]["temperature_scale"]
        assert (hot[:shared] == 0).all()
        assert hot[shared] == 1


# Runs


def test_batches_are_permutations_that_the_seed_decides():
    data = Points(torch.arange(22)[:, None], torch.arange(22))
    batches, again, other = Batches(data, 4, 1), Batches(data, 4, 1), Batches(data, 4, 2)
    assert len(batches) == 5
    epochs = [torch.cat([batches.of_step(5 * epoch + i)[1] for i in range(5)]) for epoch in (0, 1)]
    for epoch in epochs:
        assert len(epoch.unique()) == 20
    assert not epochs[0].equal(epochs[1])
    assert again.of_step(7)[1].equal(batches.of_step(7)[1])
    assert not other.of_step(7)[1].equal(batches.of_step(7)[1])
    images, labels = batches.of_step(3)
    assert images[:, 0].equal(labels)


@pytest.mark.parametrize("names", [("Snapshot-SGDM", "cSGHMC"), ("SGD", "SGLD")])
def test_a_shared_start_gives_the_same_as_a_run_from_the_start(names):
    data, plan, lr = some_points(), Plan(epochs=8, burn_in=6, draws_per_cycle=2), 0.1
    at = [(BY_NAME[names[0]], 0.0), (BY_NAME[names[1]], 1.0), (BY_NAME[names[1]], 0.01)]
    fork = shared_start(BY_NAME[names[0]], TINY, plan, data, lr, seed=3)
    runs = [fork.run(*each) for each in at]
    assert [(run.method, run.temperature) for run in runs] == at
    for run in runs:
        batches = Batches(data, TINY.batch, 3)
        schedule = plan.schedule(run.method, len(batches))
        alone = TINY.start(run.method.sampler, lr, len(data.images), 3).copy(run.temperature)
        draws = alone.advance(schedule, batches, schedule.steps)
        assert len(draws) == len(run.posterior.draws) == schedule.total_draws
        for one, other in zip(draws, run.posterior.draws, strict=True):
            assert one.step == other.step
            for name, tensor in one.tensors().items():
                assert tensor.equal(other.tensors()[name])
        assert run.train_loss == pytest.approx(np.mean(alone.losses))
        assert len(alone.losses) == len(batches)
    # The temperature matters from the first noise on.
    weights = [run.posterior.draws[0].tensors()["1.weight"] for run in runs]
    assert not weights[1].equal(weights[2])


def test_a_loss_that_is_not_finite_stops_the_run():
    with pytest.raises(FloatingPointError, match="step"):
        shared_start(BY_NAME["SGD"], TINY, Plan(40, burn_in=30), some_points(), 1e20, seed=0)


# Scores


def posterior_of(bias: list[list[float]]) -> Posterior:
    """Networks that give these logits whatever the input."""
    model, draws = mlp(2, 10), MemoryDraws()
    layer = model[1]
    assert isinstance(layer, nn.Linear)
    for step, values in enumerate(bias):
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.copy_(torch.tensor(values))
        draws.append(model, step=step)
    return Posterior(model, draws, progress=False)


def test_scores_of_known_predictions():
    test = Points(torch.zeros(20, 2), torch.arange(10).repeat(2))
    outside = torch.ones(30, 2)
    uniform = posterior_of([[0.0] * 10])
    found = scores(Run(BY_NAME["SGD"], 0.0, uniform, 0.25), test, outside)
    for score in ("nll", "entropy_test", "entropy_outside"):
        assert found[score] == pytest.approx(math.log(10), abs=1e-4)
    assert found["below"] == [0, 0, 0]
    assert found["cdf"][:99] == [0] * 99
    assert found["auroc"] == 0.5
    assert found["error"] == 0.9
    assert (found["method"], found["draws"], found["train_loss"]) == ("SGD", 1, 0.25)

    # Two networks, each sure of another class: together the entropy is log 2 = 0.69.
    sure = posterior_of([[50.0, *[0.0] * 9], [0.0, 50.0, *[0.0] * 8]])
    found = scores(Run(BY_NAME["cSGLD"], 0.1, sure, 0.0), test, outside)
    assert found["entropy_outside"] == pytest.approx(math.log(2), abs=1e-4)
    assert found["below"] == [0, 0, 1]
    assert found["cdf"][math.ceil(100 * math.log(2) / math.log(10)) + 1] == 1
    assert found["draws"] == 2


def test_a_network_that_knows_the_outside_has_auroc_one():
    model, draws = mlp(2, 10), MemoryDraws()
    layer = model[1]
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.zero_()
        layer.weight[0, 0] = 20
    draws.append(model, step=0)
    run = Run(BY_NAME["SGD"], 0.0, Posterior(model, draws, progress=False), 0.0)
    found = scores(run, Points(torch.ones(5, 2), torch.zeros(5).long()), torch.zeros(7, 2))
    assert (found["auroc"], found["error"]) == (1, 0)


# Jobs


def test_jobs_are_the_methods_at_all_temperatures_and_a_search():
    jobs = EXPERIMENT.jobs(SMOKE, {})
    runs = [
        (name, label, job["lr"], job["seed"])
        for job in jobs.values()
        if job["part"] == "paper"
        for name, label in job["runs"]
    ]
    assert len(set(runs)) == len(runs)
    for method in METHODS:
        lr = 0.01 if method.sampler is SGLD else 0.008
        labels = ["1/N", "1", "0.0045"] if method.hot else ["0"]
        of_seeds = [[run[1] for run in runs if run[::3] == (method.name, seed)] for seed in (0, 1)]
        assert of_seeds == [labels, labels[:1]]  # the second seed has no further temperatures
        assert {run[2] for run in runs if run[0] == method.name} == {lr}
    assert {job["part"] for job in jobs.values()} == {"paper", "search"}


def test_the_tuned_step_size_is_the_best_of_the_search():
    done = {}
    for key, job in EXPERIMENT.jobs(SMOKE, {}).items():
        done[key] = {"rows": []}
        if job["part"] == "search":
            # Of the samplers the smaller, of the others the larger, which Snapshot diverges at.
            losses = {
                name: {True: job["lr"], False: -job["lr"]}[BY_NAME[name].hot]
                for name in job["methods"]
            }
            if job["lr"] == 0.3 and "Snapshot-SGD" in losses:
                losses["Snapshot-SGD"] = None
            done[key] = {"lr": job["lr"], "validation_nll": losses}
    tuned = [job for job in EXPERIMENT.jobs(SMOKE, done).values() if job["part"] == "tuned"]
    assert len(tuned) == 16
    for job in tuned:
        [(name, label)] = job["runs"]
        smaller = BY_NAME[name].hot or name == "Snapshot-SGD"
        assert job["lr"] == (0.1 if smaller else 0.3)
        assert label == ("1/N" if BY_NAME[name].hot else "0")


def test_the_search_sees_neither_test_data_nor_the_outside(monkeypatch):
    source = load("digits", None)
    options = {"part": "search", "methods": ["SGD", "SGLD"], "lr": 0.1}
    found = EXPERIMENT.run(SMOKE, None, **options)
    nothing = Points(torch.empty(0), torch.empty(0))
    blind = Source(source.train, source.validation, nothing, torch.empty(0))
    monkeypatch.setattr(module, "load", lambda *_: blind)
    assert EXPERIMENT.run(SMOKE, None, **options) == found
    other = source.train.images.clone()
    other[-source.validation :] = 0  # it does see the validation data
    changed = Source(Points(other, source.train.labels), source.validation, nothing, other)
    monkeypatch.setattr(module, "load", lambda *_: changed)
    assert EXPERIMENT.run(SMOKE, None, **options) != found


def test_a_search_that_diverges_has_no_number():
    options = {"part": "search", "methods": ["SGD", "SGLD"], "lr": 1e20}
    found = EXPERIMENT.run(SMOKE, None, **options)
    assert found["validation_nll"] == {"SGD": None, "SGLD": None}


@pytest.fixture
def diverging(monkeypatch):
    """SGD diverges after the start that it shares with SGLD."""
    run = Fork.run

    def fail(fork: Fork, method, temperature):
        if method.name == "SGD":
            raise FloatingPointError("the loss is not finite at step 7")
        return run(fork, method, temperature)

    monkeypatch.setattr(Fork, "run", fail)


def test_a_method_that_diverges_in_the_search_leaves_the_other_of_its_pair(diverging):
    options = {"part": "search", "methods": ["SGD", "SGLD"], "lr": 0.1}
    found = EXPERIMENT.run(SMOKE, None, **options)["validation_nll"]
    assert found["SGD"] is None
    assert 0 < found["SGLD"] < math.log(10)


def test_a_run_that_diverges_is_one_sentence(diverging):
    runs = [("SGD", "0"), ("SGLD", "1/N")]
    job = {"part": "paper", "runs": runs, "lr": 0.1, "seed": 1}
    words = "SGD diverged with step size 0.1 and seed 1: the loss is not finite at step 7"
    with pytest.raises(ValueError, match=f"^{words}$"):
        EXPERIMENT.run(SMOKE, None, **job)
    with pytest.raises(
        ValueError, match=r"^SGD and SGLD diverged with step size 1e\+20 and seed 1"
    ):
        EXPERIMENT.run(SMOKE, None, **{**job, "lr": 1e20})


def test_nothing_is_downloaded_if_there_are_no_letters(tmp_path, monkeypatch):
    monkeypatch.setenv("CSGMCMC_DATA", str(tmp_path))
    requests = []
    monkeypatch.setattr(urllib.request, "urlopen", lambda url, **_: requests.append(url))
    words = "notMNIST .* --data; the experiment uncertainty-digits needs no data"
    with pytest.raises(FileNotFoundError, match=words):
        load("mnist", None)
    assert not requests


def test_data_are_standardised_by_the_training_data():
    source = load("digits", None)
    assert source.train.images.mean().item() == pytest.approx(0, abs=1e-4)
    assert source.train.images.std().item() == pytest.approx(1, abs=1e-4)
    assert (len(source.train.images), source.validation, len(source.test.images)) == (
        1300,
        300,
        497,
    )
    black = source.train.images.min()  # the same number in all images
    assert source.test.images.min() == source.outside.min() == black


def test_another_source_is_refused():
    with pytest.raises(ValueError, match="source"):
        type(SMOKE)(source="cifar")


# From end to end


class Stop(Exception):  # noqa: N818
    """As if the user had stopped the run."""


def test_a_small_run_goes_on_after_a_stop(tmp_path):
    experiment = find_experiments()["uncertainty"]
    keys = []

    def stop_early(key: str, done: int, of: int) -> None:
        keys.append(key)
        if len(keys) == 3:
            raise Stop

    with pytest.raises(Stop):
        reproduce(experiment, "smoke", tmp_path, on_job=stop_early)
    results = reproduce(experiment, "smoke", tmp_path, on_job=lambda key, *_: keys.append(key))
    assert results.finished
    assert len(keys) == len(set(keys)) == len(results.records) == 8 + 8 + 16

    jobs = experiment.jobs(SMOKE, results.records)
    for key in keys[2], keys[-1]:
        record = experiment.run(SMOKE, None, **jobs[key])
        seconds = results.records[key]["seconds"]
        assert {**record, "seconds": seconds} == results.records[key]
    rows = [row for record in results.records.values() for row in record.get("rows", [])]
    assert len(rows) == 8 * 2 + 4 * 2 + 8 * 2
    for row in rows:
        assert len(row["cdf"]) == 101
        assert row["below"] == sorted(row["below"])
        assert 0 <= row["error"] < 0.95
    by_step_size = {
        part: np.mean(
            [
                row["error"]
                for record in results.records.values()
                if record["part"] == part
                for row in record["rows"]
            ]
        )
        for part in ("paper", "tuned")
    }
    assert by_step_size["tuned"] < by_step_size["paper"]  # 0.01 is far too small for this few steps
