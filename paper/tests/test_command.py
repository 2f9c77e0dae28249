"""The command `python -m paper`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paper.__main__ as command
from paper.experiments import Results, find_experiments
from paper.experiments.plan import Work, step_time
from paper.report.chapter import ORDER
from paper.tests.data.archives import write_cifar
from paper.tests.experiments.tiny import Tiny
from paper.tests.report.support import make_results, save

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return CliRunner().invoke(command.app, list(arguments))


WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
from paper.__main__ import app
for words in ("--help", "list", "run --help", "run schedule", "report ."):
    try:
        app(words.split())
    except SystemExit as end:
        print(words, "ends with", end.code)
"""


def test_help_and_list_need_no_plotting_package():
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_MATPLOTLIB],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    ends = [line for line in result.stdout.splitlines() if "ends with" in line]
    codes = {"--help": 0, "list": 0, "run --help": 0, "run schedule": 2, "report .": 2}
    assert ends == [f"{words} ends with {code}" for words, code in codes.items()]
    said = "paper: matplotlib is missing: pip install 'csgmcmc[plot]'"
    assert result.stderr.splitlines() == [said] * 2


def test_list():
    result = run("list")
    assert result.exit_code == 0, result.output
    for words in ("schedule", "Figure 1", "paper, laptop, smoke"):
        assert words in result.output


def test_the_device_is_part_of_the_command_and_must_be_there(tmp_path):
    arguments = ["run", "schedule", "--preset", "smoke", "--out", str(tmp_path), "--device"]
    assert run(*arguments, "cpu").exit_code == 0
    assert Results.load(tmp_path / "schedule.json").command.endswith("--device cpu")
    result = run(*arguments, "nowhere")
    assert result.exit_code == 2
    assert "device" in result.output


def test_run_and_report(tmp_path):
    arguments = ["run", "schedule", "--preset", "smoke", "--out", str(tmp_path)]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    for words in ("schedule: 1/1", "Claims", "held", "Both schedules over all steps"):
        assert words in result.output
    assert str(tmp_path / "schedule.json") in result.output
    assert "1/1" not in run(*arguments).output  # nothing is left to do
    made = run("report", str(tmp_path))
    assert made.exit_code == 0, made.output
    assert str(tmp_path / "README.md") in made.output
    assert "5 held" in (tmp_path / "README.md").read_text()


def test_as_a_module(tmp_path):
    arguments = ["run", "schedule", "--preset", "smoke", "--out", str(tmp_path)]
    result = subprocess.run(
        [sys.executable, "-m", "paper", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    results = Results.load(tmp_path / "schedule.json")
    assert results.finished
    assert results.command == "python -m paper run schedule --preset smoke"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["shedule"], "there is no experiment 'shedule'. Choose one of"),
        (["schedule", "--preset", "huge"], "no preset 'huge': choose one of paper, laptop, smoke"),
        (["schedule", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["schedule", "--workers", "0"], "workers must be at least 1, got 0"),
        (["schedule", "--data", "nowhere"], "there is no folder nowhere, which --data names"),
        (["schedule", "--config", "no.json"], "there is no file no.json, which --config names"),
    ],
)
def test_bad_arguments_are_rejected_in_one_sentence(arguments, words, tmp_path):
    result = run("run", *arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert words in result.output
    assert len(result.output.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_settings_is_rejected(tmp_path):
    arguments = ["run", "schedule", "--out", str(tmp_path)]
    assert run(*arguments, "--preset", "smoke").exit_code == 0
    result = run(*arguments, "--preset", "paper")
    assert result.exit_code == 2
    assert "other settings (cycles, steps)" in result.output


def test_a_recipe_changes_settings(tmp_path):
    recipe = tmp_path / "recipe.json"
    values = {"sampler": "SGHMC", "temperature": 1.0, "cycles": 10, "exploration": 0.5, "lr": 0.07}
    recipe.write_text(json.dumps(values))
    arguments = ["run", "schedule", "--preset", "smoke", "--out", str(tmp_path / "out")]
    result = run(*arguments, "--config", str(recipe))
    assert result.exit_code == 0, result.output
    assert "schedule has no settings for sampler, temperature" in result.output
    config = Results.load(tmp_path / "out" / "schedule.json").config
    assert (config["cycles"], config["exploration"], config["cyclical_lr"]) == (10, 0.5, 0.07)
    recipe.write_text('{"beta": 0.5}')
    result = run(*arguments, "--config", str(recipe))
    assert result.exit_code == 2
    assert "is a setting of schedule: seeds, steps, cycles" in result.output
    assert len(result.output.splitlines()) == 1


def test_an_interrupted_experiment_says_how_to_continue(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "find_experiments", lambda: {"tiny": Tiny()})
    (tmp_path / "do 3").write_text("interrupt")
    arguments = ["--preset", "paper", "--data", str(tmp_path), "--out", str(tmp_path)]
    result = run("run", "tiny", *arguments, "--workers", "1")
    assert result.exit_code == 130
    assert result.output.splitlines()[2:] == ["paper: stopped; the same command continues it"]
    assert len(Results.load(tmp_path / "tiny.json").records) == 2


def test_report_rejects_what_holds_no_results(tmp_path):
    result = run("report", str(tmp_path / "missing"))
    assert result.exit_code == 2
    assert "there is no folder" in result.output
    result = run("report", str(tmp_path))
    assert result.exit_code == 2
    assert "holds no results" in result.output


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("experiment", 5),
        ("preset", None),
        ("config", []),
        ("versions", "2.0"),
        ("machine", {}),
        ("command", 5),
        ("seconds", "x"),
        ("finished", "yes"),
        ("records", []),
        ("records", {"a": 5}),
        ("experiment", "../schedule"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_report_names_a_field_of_the_wrong_kind(tmp_path, field, value, finished):
    results = make_results(experiment="schedule", records={"a": {}}, finished=finished)
    (tmp_path / "schedule.json").write_text(json.dumps({**results, field: value}))
    result = run("report", str(tmp_path))
    if (field, finished) == ("experiment", False) and isinstance(value, str):
        assert result.exit_code == 0, result.output  # of which nothing is shown but its name
        return
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.output.splitlines()
    assert field in line


@pytest.mark.parametrize("records", [{}, {"a": {"steps": "x"}}, {"a": {}}])
def test_report_names_results_that_do_not_fit_their_page(tmp_path, records):
    for name in ("schedule", "mixture", "cifar-diversity", "truth", "uncertainty"):
        save(tmp_path, experiment=name, records=records, config={})
        result = run("report", str(tmp_path))
        assert result.exit_code == 2, (name, result.output)
        (line,) = result.output.splitlines()
        assert f"the results of {name}" in line
        (tmp_path / f"{name}.json").unlink()


def test_report_names_what_cannot_be_read(tmp_path):
    for text in (b"\xff", b"[" * 100_000, b"5"):
        (tmp_path / "schedule.json").write_bytes(text)
        result = run("report", str(tmp_path))
        assert result.exit_code == 2
        assert "does not hold results" in result.output


def test_the_preset_paper_refuses_a_part_of_the_data(tmp_path):
    write_cifar(tmp_path, "cifar10", train=70, test=20)
    write_cifar(tmp_path, "cifar100", train=70, test=20)
    options = ["--preset", "paper", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    result = run("run", "cifar", *options)
    assert result.exit_code == 2
    assert "50,000 training and 10,000 test images, and the data have 70 and 20" in result.output
    assert not (tmp_path / "out").exists()


def test_all_checks_every_data_set_before_it_begins(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr(command, "run_one", lambda name, *_: begun.append(name))
    result = run("run", "all", "--preset", "paper", "--data", str(tmp_path))
    assert result.exit_code == 2
    assert "imagenet: " in result.output or "cifar" in result.output
    assert begun == []
    assert run("run", "all", "--preset", "smoke", "--data", str(tmp_path)).exit_code == 0
    assert begun == [name for name in ORDER if "smoke" in find_experiments()[name].presets]


def test_a_dry_run_counts_shared_chains_once(monkeypatch):
    monkeypatch.setattr("paper.experiments.plan.step_time", lambda *_: 3.6)
    result = run("run", "all", "--preset", "paper", "--dry-run")
    assert result.exit_code == 0, result.output
    rows = [line.split("│")[1:5] for line in result.output.splitlines() if "│" in line]
    found = {name.strip(): [cell.strip() for cell in cells] for name, *cells in rows}
    # 120 epochs of 20,018 batches for each of four methods.
    assert found["imagenet"] == ["4", "480", f"{480 * 20_018 / 1000:.1f}"]
    assert found["cifar"][0] == "114"
    assert "cifar-diversity" not in found  # its chains are those of cifar
    result = run("run", "mnist", "--preset", "laptop", "--dry-run")
    assert result.exit_code == 2
    assert "mnist searches for step sizes" in result.output


def test_the_time_of_a_step_is_measured():
    perceptron = find_experiments()["mnist-stages"].presets["smoke"].settings[0]
    run_of_it = perceptron.run("SGD", 0.1, seed=0)
    work = Work("mnist", perceptron.network, 60, (1, 28, 28), run_of_it)
    assert 0 < step_time(work, 0.01) < 10
    assert work.steps == run_of_it.epochs * 6
