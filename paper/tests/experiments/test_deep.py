"""The experiments on CIFAR: runs and their draws, jobs, and small runs from end to end."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from csgmcmc.draws import DrawStore
from paper.experiments import deep_base as base
from paper.experiments import find_experiments, reproduce
from paper.experiments.cifar import CifarParallel, CifarSensitivity, CifarTable
from paper.experiments.deep_diversity import spread
from paper.experiments.deep_parallel import COLUMNS
from paper.experiments.deep_runs import folder_of, load, sample
from paper.experiments.deep_settings import AUGMENTED, CONVERGED, LAPTOPS, PAPER, SMOKE
from paper.experiments.deep_table import LITERAL, MORE, SAME
from paper.experiments.methods import BY_NAME, Run
from paper.pages import make_page
from paper.report.page import Grid
from paper.tests.data.archives import write_cifar

TABLE = CifarTable()
SETTING = SMOKE["cifar10"]
RUN = ("source", *Run.__dataclass_fields__)
NAMES = ("cifar", "cifar-diversity", "cifar-parallel", "cifar-sensitivity", "cifar-tempering")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for name in SMOKE:
        write_cifar(folder, name)
    return folder


# Schedules


def test_every_method_of_the_table_has_the_same_steps():
    for setting in (*PAPER.values(), *LAPTOPS.values(), *SMOKE.values()):
        runs = {name: setting.run(name, 0.1, 0) for name in BY_NAME}
        tables = {name: run.schedule(30) for name, run in runs.items()}
        assert {schedule.steps for schedule in tables.values()} == {30 * setting.epochs}
        kept = {name: schedule.total_draws for name, schedule in tables.items()}
        cycles = setting.cycles
        assert kept == {
            **dict.fromkeys(("SGD", "SGDM"), 1),
            **dict.fromkeys(("Snapshot-SGD", "Snapshot-SGDM"), cycles),
            **dict.fromkeys(("SGLD", "SGHMC"), setting.draws),
            **dict.fromkeys(("cSGLD", "cSGHMC"), cycles * setting.draws_per_cycle),
        }
        for schedule in tables.values():
            assert schedule(schedule.steps - 1).collect  # so a full store is a finished run


def test_the_traditional_samplers_of_the_paper():
    table = PAPER["cifar10"].run("SGLD", 0.1, 0).schedule(10).table()
    lr = 0.1 * table["lr_scale"]
    assert lr[0] == pytest.approx(0.1)
    assert lr[1499] == pytest.approx(0.001)
    assert (np.diff(lr[:1500]) <= 0).all()
    assert lr[1500:] == pytest.approx(0.01 * np.repeat(np.arange(1, 51), 10) ** -0.5005)
    assert (table["temperature_scale"] == np.repeat([0, 1], [1500, 500])).all()
    assert table["collect"][1500:].sum() == 20


def test_the_settings_of_the_paper():
    for name, exploration in (("cifar10", 0.8), ("cifar100", 0.94)):
        setting = PAPER[name]
        run = setting.run("cSGHMC", setting.lrs["cSGHMC"], 0)
        assert (run.lr, run.cycles, run.exploration, run.draws) == (0.5, 4, exploration, 3)
        assert (run.epochs, run.temperature, run.heat(50_000)) == (200, "1/N", 2e-5)
        network = setting.network
        assert (network.batch, network.weight_decay, network.momentum) == (64, 5e-4, 0.1)
        assert sum(param.numel() for param in network.make(10).parameters()) > 11e6


def test_a_width_that_would_corrupt_memory_is_refused():
    with pytest.raises(ValueError, match="width must be a multiple of 8, got 4"):
        replace(SETTING.network, width=4)


# Draws on disk


def test_a_run_is_made_once_and_goes_on_where_it_was(data, tmp_path, monkeypatch):
    source = load(SETTING, data)
    run = SETTING.run("cSGLD", 0.1, seed=1, epochs=4)
    whole = sample(run, SETTING.network, source, tmp_path / "whole")
    assert len(whole) == 8

    class Stop(Exception):  # noqa: N818
        pass

    class Limited(DrawStore):
        def _append(self, draw):
            super()._append(draw)
            if len(self) == 3:
                raise Stop

    with monkeypatch.context() as patched:
        patched.setattr("paper.experiments.deep_runs.DrawStore", Limited)
        with pytest.raises(Stop):
            sample(run, SETTING.network, source, tmp_path / "stopped")
    again = sample(run, SETTING.network, source, tmp_path / "stopped")
    for one, other in zip(whole, again, strict=True):
        assert one.step == other.step
        ours, theirs = one.tensors(), other.tensors()
        assert any("running_mean" in name for name in ours)  # each has its own statistics
        assert all(ours[name].equal(theirs[name]) for name in ours)

    def no_chain(*_, **__):
        raise AssertionError

    monkeypatch.setattr("paper.experiments.methods.Chain", no_chain)
    assert len(sample(run, SETTING.network, source, tmp_path / "whole")) == 8


def test_all_that_decides_the_draws_decides_their_folder(data, tmp_path):
    source, network = load(SETTING, data), SETTING.network
    run = SETTING.run("cSGLD", 0.1, 0)
    changed = [
        {"lr": 0.2}, {"seed": 1}, {"epochs": 9}, {"temperature": "1"}, {"cycles": 2},
        {"exploration": 0.5}, {"draws": 1}, {"held_out": 10}, {"method": "cSGHMC"},
        {"noise": "always"}, {"decay_in": "steps"},
    ]  # fmt: skip
    assert {next(iter(change)) for change in changed} == set(run.__dataclass_fields__)
    folders = [folder_of(tmp_path, network, source, replace(run, **change)) for change in changed]
    folders.append(folder_of(tmp_path, replace(network, batch=5), source, run))
    folders.append(folder_of(tmp_path, network, load(replace(SETTING, train=50), data), run))
    folders.append(folder_of(tmp_path, network, replace(source, augment=False), run))
    folders.append(folder_of(tmp_path, network, source, run))
    assert len(set(folders)) == len(folders)


def test_the_seed_gives_all_methods_the_same_start_and_data(data):
    source, starts = load(SETTING, data), []
    for method in ("cSGLD", "Snapshot-SGD"):
        run = SETTING.run(method, 1e-9, seed=5, epochs=1, cycles=1, draws=1)
        draws = sample(run, SETTING.network, source, None)
        starts.append(draws[0].tensors()["stem.1.running_mean"])
    assert starts[0].numpy() == pytest.approx(starts[1].numpy(), abs=1e-4)
    assert (
        not SETTING.network.make(10, 5)
        .state_dict()["stem.0.weight"]
        .equal(SETTING.network.make(10, 6).state_dict()["stem.0.weight"])
    )


# Jobs


def done_search(experiment, config, best):
    """Records of a search in which the step size `best` wins."""
    return {
        key: {
            "setting": job["setting"].name,
            "method": job["run"].method,
            "lr": job["run"].lr,
            "validation_nll": abs(job["run"].lr - best),
        }
        for key, job in experiment.jobs(config, {}).items()
    }


def test_the_search_comes_first_and_decides_the_step_sizes():
    config = TABLE.presets["smoke"]
    search = TABLE.jobs(config, {})
    assert {job["part"] for job in search.values()} == {"search"}
    assert {job["setting"].name for job in search.values()} == {"cifar10"}
    assert len(search) == 8 * 2
    for job in search.values():
        assert job["run"].held_out == 10
    done = done_search(TABLE, config, best=0.3)
    chains = [job["run"] for job in TABLE.jobs(config, done).values() if job["part"] == "chain"]
    assert {run.held_out for run in chains} == {0}
    for run in chains:
        assert run.lr == (0.03 if run.method == "SGDM" else 0.3)
    done = {**done, next(iter(done)): {**next(iter(done.values())), "validation_nll": None}}
    TABLE.jobs(config, done)  # one that diverged is passed over
    lost = {key: {**record, "validation_nll": None} for key, record in done.items()}
    with pytest.raises(ValueError, match=r"diverged, .* at every step size"):
        TABLE.jobs(config, lost)


def test_a_setting_follows_when_the_one_before_is_done():
    config = TABLE.presets["smoke"]
    done = done_search(TABLE, config, best=0.3)
    for part in ("chain", "group"):
        jobs = TABLE.jobs(config, done)
        new = [key for key in jobs if key not in done]
        assert {jobs[key]["part"] for key in new} == {part}
        done.update({key: {} for key in new})
    jobs = TABLE.jobs(config, done)
    new = [jobs[key] for key in jobs if key not in done]
    assert {(job["part"], job["setting"].name) for job in new} == {("search", "cifar100")}


def test_chains_of_the_table_and_networks_of_the_ensembles():
    config = TABLE.presets["laptop"]
    setting = LAPTOPS["cifar10"]
    lrs = dict.fromkeys(BY_NAME, 0.1)
    chains, groups = TABLE.chains(config, setting, lrs), TABLE.groups(config, setting, lrs)
    assert len(set(chains.values())) == len(chains) == 8 * 3 + 4 + 12 + 9
    assert sum(run.temperature == LITERAL for run in chains.values()) == 4
    for label, epochs in ((SAME, setting.epochs), (MORE, 4 * setting.epochs)):
        of_row = [group["runs"] for group in groups.values() if group["method"] == label]
        assert [sum(run.epochs for run in runs) for runs in of_row] == [epochs] * 3
        members = [run for runs in of_row for run in runs]
        assert len({run.seed for run in members}) == 12
        assert set(members) <= set(chains.values())
    assert [group["seed"] for group in groups.values()] == [0, 1, 2] * 2


def test_groups_of_chains_have_the_epochs_that_the_paper_says():
    setting = PAPER["cifar10"]
    parallel = CifarParallel()
    config = parallel.presets["paper"]
    groups = parallel.groups(config, setting, setting.lrs)
    cost = {
        (group["kind"], group["column"]): (group["epochs"], sum(r.epochs for r in group["runs"]))
        for group in groups.values()
    }
    for kind in ("SGLD", "SGHMC"):
        found = [cost[kind, column] for column, *_ in COLUMNS]
        assert found == [(200, 800), (200, 800), (100, 400), (200, 200)]
    assert len(parallel.chains(config, setting, setting.lrs)) == 2 * (4 + 4 + 4)
    table = TABLE.chains(TABLE.presets["paper"], setting, setting.lrs)
    shared = set(table.values()) & set(parallel.chains(config, setting, setting.lrs).values())
    assert len(shared) == 4 * 3  # three of four chains are there already

    sensitivity = CifarSensitivity()
    config = sensitivity.presets["paper"]
    groups = sensitivity.groups(config, setting, setting.lrs)
    assert len(groups) == 8
    for group in groups.values():
        assert sum(run.epochs for run in group["runs"]) == 200
        assert len(group["runs"]) == (1 if group["method"] == "cSGLD" else group["cycles"])


def test_settings_that_take_the_step_sizes_of_cifar10_search_for_none():
    for setting in (CONVERGED["cifar100"], AUGMENTED):
        assert set(setting.lrs) == set(BY_NAME)
        assert not [run for method in BY_NAME for run in setting.searches(method)]
        for snapshot, sampler in (("Snapshot-SGD", "cSGLD"), ("Snapshot-SGDM", "cSGHMC")):
            assert setting.lrs[snapshot] == setting.lrs[sampler]


def test_a_search_is_kept_beside_the_draws(data, tmp_path, monkeypatch):
    run = next(SETTING.searches("SGD"))
    options = {"part": "search", "setting": SETTING, "run": run, "draws": tmp_path}
    config = TABLE.presets["smoke"]
    found = TABLE.run(config, data, **options)
    assert found["validation_nll"] > 0
    monkeypatch.setattr(base, "choose_by", None)
    assert TABLE.run(config, data, **options) == found


def test_what_diverges_has_no_scores(data, tmp_path):
    config = TABLE.presets["smoke"]
    run = SETTING.run("SGD", 1e30, 0, held_out=10)
    options = {"setting": SETTING, "draws": tmp_path}
    assert TABLE.run(config, data, part="search", run=run, **options)["validation_nll"] is None
    assert TABLE.run(config, data, part="chain", run=run, **options)["scores"] is None
    record = TABLE.run(config, data, part="group", runs=[run], method="x", seed=0, **options)
    assert record["scores"] is None


def test_draws_are_spread_evenly():
    assert spread(list(range(20)), 4) == [0, 6, 13, 19]
    assert spread([1, 2], 5) == [1, 2]


# From end to end


class Stop(Exception):  # noqa: N818
    """As if the user had stopped the run."""


@pytest.fixture(scope="module")
def small_run(data, tmp_path_factory):
    """All experiments in one folder, the first of them stopped on the way; what jobs were run."""
    out, keys = tmp_path_factory.mktemp("out"), {name: [] for name in NAMES}

    def stop_early(key, done, of):
        keys["cifar"].append(key)
        if done == 40:
            raise Stop

    experiments = find_experiments()
    with pytest.raises(Stop):
        reproduce(experiments["cifar"], "smoke", out, data=data, on_job=stop_early)
    results = {
        name: reproduce(
            experiments[name], "smoke", out, data=data,
            on_job=lambda key, *_, name=name: keys[name].append(key),
        )
        for name in NAMES
    }  # fmt: skip
    return out, keys, results


def test_all_jobs_are_done_once(small_run):
    _, keys, results = small_run
    for name in NAMES:
        assert results[name].finished
        assert len(keys[name]) == len(set(keys[name])) == len(results[name].records)
        for record in results[name].records.values():
            if record["part"] != "search" and "scores" in record:
                assert 0 <= record["scores"]["error"] <= 1
                assert record["scores"]["nll"] > 0


def test_experiments_share_the_draws(small_run):
    out, _, results = small_run
    stores = [path.parent for path in (out / "draws").rglob("store.json")]
    runs = {
        tuple(sorted((k, v) for k, v in record.items() if k in RUN))
        for name in NAMES
        for record in results[name].records.values()
        if record["part"] == "chain"
    }
    assert len(stores) == len(runs)
    by_method = {
        name: {
            (r["source"], r["method"], r["seed"]): r["scores"]
            for r in results[name].records.values()
            if r["part"] == "chain" and r["epochs"] == 10 and r["temperature"] in ("0", "1/N")
        }
        for name in ("cifar", "cifar-diversity")
    }
    for key, found in by_method["cifar-diversity"].items():
        assert found == by_method["cifar"][key]


def test_the_diversity_of_the_draws(small_run):
    *_, results = small_run
    groups = [r for r in results["cifar-diversity"].records.values() if r["part"] == "group"]
    assert [group["family"] for group in groups] == ["SGLD", "SGHMC"]
    for group in groups:
        weights = group["weights"]
        assert len(weights["places"]) == 8 + 3
        assert weights["cycles"] == [0, 0, 1, 1, 2, 2, 3, 3, None, None, None]
        assert weights["between_cycles"] > weights["within_cycles"]
        assert [len(group["lines"][kind]) for kind in ("cyclical", "traditional")] == [3, 2]
        for line in group["lines"]["cyclical"]:
            assert len(line["error"]) == 3
            assert line["barrier"] >= 0
        counts = [
            (len(found["single_errors"]), len(found["error_by_cycles"]))
            for found in group["functions"].values()
        ]
        assert counts == [(8, 4), (4, 4), (3, 1)]
        table = results["cifar"].records[f"cifar10, c{group['family']}, seed 0"]
        cyclical = group["functions"][f"c{group['family']}"]
        assert cyclical["error_by_cycles"][-1] == pytest.approx(table["scores"]["error"])
        assert cyclical["nll"] == pytest.approx(table["scores"]["nll"], abs=2e-5)
        assert cyclical["nll_without_first_cycle"] != cyclical["nll"]
        assert group["functions"][group["family"]]["nll_without_first_cycle"] is None


def test_the_temperature_matters(small_run):
    *_, results = small_run
    by_temperature = {
        record["temperature"]: record["scores"]["nll"]
        for record in results["cifar-tempering"].records.values()
        if record["part"] == "chain"
    }
    assert by_temperature.keys() == {"1", "0.01", "0"}
    assert len(set(by_temperature.values())) == 3


def test_the_numbers_of_a_job_do_not_depend_on_the_thread_or_folder(small_run, data, tmp_path):
    *_, results = small_run
    jobs = TABLE.jobs(TABLE.presets["smoke"], results["cifar"].records)
    key = "cifar10, cSGHMC, seed 1"
    torch.manual_seed(99)  # what the global generator does must not matter
    record = TABLE.run(TABLE.presets["smoke"], data, draws=tmp_path, **jobs[key])
    assert {**record, "seconds": results["cifar"].records[key]["seconds"]} == results[
        "cifar"
    ].records[key]


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_page_of_each(small_run, name):
    *_, results = small_run
    page = make_page(vars(results[name]))
    assert page.claims
    for part in page.parts:
        if isinstance(part, Grid):
            assert part.rows
            assert all(len(row) == len(part.header) for row in part.rows)
