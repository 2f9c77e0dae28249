"""Networks whose cycles fit the training data: the choice of step sizes, small runs, and pages."""

from dataclasses import replace

import numpy as np
import pytest

from paper.experiments import find_experiments, reproduce
from paper.experiments.cifar_converged import ConvergedRivals
from paper.experiments.deep_runs import last_of_each_cycle, load, load_outside, sample
from paper.experiments.deep_settings import MNIST, SMOKE_MNIST
from paper.experiments.methods import BY_NAME
from paper.experiments.mnist import MnistRivals, MnistTable
from paper.pages import make_page
from paper.report.page import Grid
from paper.tests.data.archives import write_mnist

TABLE = MnistTable()
CONFIG = TABLE.presets["smoke"]
NAMES = tuple(name for name in find_experiments() if name.partition("-")[0] == "mnist")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder)
    return folder


@pytest.fixture(scope="module")
def small_runs(data, tmp_path_factory):
    """All experiments on MNIST in one folder, where they share their draws."""
    out = tmp_path_factory.mktemp("out")
    return {
        name: reproduce(find_experiments()[name], "smoke", out, data=data) for name in sorted(NAMES)
    }


def test_the_parts_of_the_data_do_not_overlap(data):
    source = load(SMOKE_MNIST, data)
    assert [len(part) for part in (source.train, source.later, source.test)] == [60, 20, 50]
    everything = load(replace(SMOKE_MNIST, train=80), data).train.pixels
    assert everything[:60].equal(source.train.pixels)
    assert everything[60:].equal(source.later.pixels)
    assert len(load_outside(source, data, 30)) == 30
    numbers = source.standard(source.train.pixels)
    assert numbers.mean().item() == pytest.approx(0, abs=1e-5)
    assert numbers.std().item() == pytest.approx(1, abs=1e-3)


def test_the_lowest_nll_on_validation_data_decides_and_some_methods_share_it():
    best = {"SGD": 0.4, "SGDM": 0.1, "cSGLD": 0.8, "cSGHMC": 0.05}
    found = {
        key: {
            "setting": "mnist",
            "method": job["run"].method,
            "lr": job["run"].lr,
            "validation_nll": abs(job["run"].lr - best[job["run"].method]),
        }
        for key, job in TABLE.jobs(TABLE.presets["laptop"], {}).items()
    }
    jobs = TABLE.jobs(TABLE.presets["laptop"], found)
    chosen = {job["run"].method: job["run"].lr for key, job in jobs.items() if "seed 0" in key}
    shared = {"Snapshot-SGD": 0.8, "Snapshot-SGDM": 0.05, "SGLD": 0.4, "SGHMC": 0.05}
    assert chosen == {**best, **shared}


def test_a_step_size_that_does_not_fit_the_training_data_is_not_taken():
    config = replace(CONFIG, settings=(replace(SMOKE_MNIST, search_fit=0.02),))
    found = {
        key: {
            "setting": "mnist",
            "method": job["run"].method,
            "lr": job["run"].lr,
            "validation_nll": -job["run"].lr,  # the largest has the lowest NLL
            "train_error": 0.03 if job["run"].lr == max(SMOKE_MNIST.searched) else 0.01,
        }
        for key, job in TABLE.jobs(config, {}).items()
    }
    jobs = TABLE.jobs(config, found)
    assert jobs["mnist, cSGLD, seed 0"]["run"].lr == min(SMOKE_MNIST.searched)
    assert TABLE.jobs(CONFIG, found)["mnist, cSGLD, seed 0"]["run"].lr == max(SMOKE_MNIST.searched)


def test_a_search_tries_the_runs_of_the_table():
    for method in ("SGD", "SGDM", "cSGLD", "cSGHMC"):
        tried = list(MNIST.searches(method))
        assert tried == [MNIST.run(method, run.lr, seed=0) for run in tried]
        assert len(tried) == 4
    assert not list(MNIST.searches("SGLD"))


def test_when_noise_begins():
    run = MNIST.run("cSGLD", 0.1, 0, temperature="1")
    scales = {
        noise: replace(run, noise=noise).schedule(10).table()["temperature_scale"]
        for noise in ("late", "rising", "always")
    }
    cycle = 200
    assert (scales["late"][:cycle] == np.repeat([0, 1], [160, 40])).all()
    assert (scales["always"] == 1).all()
    assert (np.diff(scales["rising"][:cycle]) >= 0).all()
    assert scales["rising"][0] == 0
    assert scales["rising"][cycle - 1] == pytest.approx(1, abs=0.01)
    old = MNIST.run("SGLD", 0.1, 0, noise="always").schedule(10).table()
    assert (old["temperature_scale"] == 1).all()


def test_a_decay_that_counts_iterations():
    table = MNIST.run("SGLD", 0.1, 0, decay_in="steps").schedule(10).table()
    tail = 0.1 * np.arange(1, 201) ** -0.5005
    assert table["lr_scale"][600:] == pytest.approx(tail)
    assert table["collect"].sum() == MNIST.draws


def test_the_last_draw_of_each_cycle():
    assert last_of_each_cycle([5.0, 4.0, 3.0, 2.0], [0, 0, 1, 1]) == [4.0, 2.0]


def test_records_hold_sizes_and_the_fit_of_each_draw(small_runs, data):
    records = small_runs["mnist"].records
    record = records["mnist, cSGHMC, seed 1"]
    assert record["train"]["size"] == 60
    assert record["scores"]["tested"] == 50
    assert record["validation"]["tested"] == 20
    assert record["train"]["cycles"] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(record["train"]["errors"]) == len(record["train"]["nlls"]) == 8
    source, run = load(SMOKE_MNIST, data), SMOKE_MNIST.run("cSGHMC", record["lr"], 1)
    model = SMOKE_MNIST.network.make(10)
    model.load_state_dict(sample(run, SMOKE_MNIST.network, source, None)[-1].tensors())
    wrong = model(source.standard(source.train.pixels)).argmax(1) != source.train.labels
    assert record["train"]["errors"][-1] == pytest.approx(wrong.float().mean().item(), abs=1e-5)


def test_entropy_on_letters_is_higher_where_it_should_be(small_runs):
    records = small_runs["mnist-uncertainty"].records
    for record in records.values():
        if record["part"] == "chain":
            outside = record["outside"]
            assert 0 <= outside["auroc"] <= 1
            assert outside["below"] == sorted(outside["below"])
            assert len(outside["cdf"]) == 101
    same = "mnist, cSGLD, seed 0"
    assert records[same]["scores"] == small_runs["mnist"].records[same]["scores"]


def test_the_first_seed_chooses_the_hyperparameters_of_rivals():
    rivals = find_experiments()["mnist-rivals"]
    config = replace(rivals.presets["smoke"], seeds=2)
    done: dict[str, dict] = {}
    while len(jobs := rivals.jobs(config, done)) > len(done):
        for key, job in jobs.items():
            if job["part"] == "search":
                done[key] = {"setting": "mnist", "method": job["run"].method, "lr": job["run"].lr}
                done[key]["validation_nll"] = job["run"].lr
            elif job["part"] == "group":
                done[key] = {"method": job["method"], "chosen": list(job["runs"])[-1]}
            else:
                done[key] = {}
    tried = {
        (job["method"], job["seed"]): list(job["runs"]) for job in jobs.values() if "runs" in job
    }
    rates = [f"{rate}, step size 0.05" for rate in ("0.1", "0.25", "0.5")]
    assert tried["MC dropout", 0] == rates
    assert tried["MC dropout", 1] == rates[-1:]
    dropped = [getattr(job["run"], "dropout", 0) for key, job in jobs.items() if "network" in key]
    assert sorted(rate for rate in dropped if rate) == [0.1, 0.25, 0.5, 0.5]


@pytest.mark.parametrize("rivals", [MnistRivals(), ConvergedRivals()], ids=lambda one: one.name)
def test_ensembles_beside_rivals_are_those_of_table_1(rivals):
    config = rivals.presets["laptop"]
    groups = rivals.groups(config, config.settings[0], dict.fromkeys(BY_NAME, 0.4))
    for label in ("ensemble, same budget", "ensemble, M budgets"):
        [members, *_] = groups[f"{label}, seed 0"]["runs"].values()
        assert [run.seed for run in members] == [0, 3, 6, 9]


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_page_of_each(small_runs, name):
    page = make_page(vars(small_runs[name]))
    assert page.claims
    assert page.title.startswith("MNIST, cycles that converge: ")
    grids = [part for part in page.parts if isinstance(part, Grid)]
    assert any(grid.title.startswith("The gate") for grid in grids)
    for grid in grids:
        assert grid.rows
        assert all(len(row) == len(grid.header) for row in grid.rows)
    [words] = [part for part in page.parts if isinstance(part, str) and "training and" in part]
    assert "60 training and 50 test images" in words
