import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from csgmcmc import Recipe
from csgmcmc.cli import app
from csgmcmc.tuning import read_trials

SCRIPT = """
import time

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import Recipe, Task

def make_run():
    inputs = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    model = nn.Linear(4, 2)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    return Task(model, cross_entropy, loader, recipe=Recipe(draws_per_cycle=1))

def broken():
    raise ValueError("of the user's own")

def stopped():
    raise KeyboardInterrupt

def slowly():
    def wait(outputs, labels):
        time.sleep(0.05)
        return cross_entropy(outputs, labels)
    task = make_run()
    return Task(task.model, wait, task.data, recipe=task.recipe)

def without_data():
    return open("absent.csv")
"""


@pytest.fixture(autouse=True)
def _script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "tuned_script.py").write_text(SCRIPT)
    yield
    sys.modules.pop("tuned_script", None)


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.filterwarnings("ignore::csgmcmc.errors.SamplingWarning")  # of what is best here
def test_a_search_prints_its_trials_and_how_to_run_the_best(tmp_path):
    command = ["tune", "tuned_script:make_run", "--out", "runs/a", "--epochs", "12"]
    result = run(*command, "--trials", "2")
    assert result.exit_code == 0, result.output
    assert "scored on 24 of the 120 training points" in result.output
    assert "range test: unstable from lr" in result.output
    assert "trial 2 of 2: cycles" in result.output
    recipe = Recipe.load("runs/a/recipe.json")
    assert f"best: lr {recipe.lr:g}, cycles {recipe.cycles}" in result.output
    last = result.output.strip().splitlines()[-1]
    assert last == "csgmcmc run tuned_script:make_run --config runs/a/recipe.json"
    sampled = run(*last.split()[1:], "--out", "runs/b")
    assert sampled.exit_code == 0, sampled.output
    assert Recipe.load("runs/b/recipe.json") == recipe
    more = run(*command, "--trials", "3")
    assert "trial 3 of 3: cycles" in more.output
    assert "trial 2 of" not in more.output
    assert "range test" not in more.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tuned_script"], "'tuned_script' must be MODULE:FUNCTION"),
        (["absent_script:make_run"], "there is no module 'absent_script'"),
        (["tuned_script:absent"], "tuned_script has no function 'absent'"),
        (["tuned_script:make_run", "--trials", "0"], "trials must be at least 1, got 0"),
        (["tuned_script:make_run", "--epochs", "0.1"], "are too few for cycles"),
        (["tuned_script:make_run", "--held-out", "1"], "held_out must be above 0 and below 1"),
    ],
)
def test_bad_arguments_are_told_in_one_line(arguments, words):
    result = run("tune", *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_errors_of_the_script_come_with_their_traceback():
    result = run("tune", "tuned_script:broken")
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == "of the user's own"


def test_files_that_the_script_misses_come_with_its_traceback():
    result = run("tune", "tuned_script:without_data")
    assert isinstance(result.exception, FileNotFoundError)


def test_a_folder_that_cannot_be_made_is_told_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("tune", "tuned_script:make_run", "--epochs", "12", "--out", "file/a")
    assert result.exit_code == 2
    assert "Not a directory: 'file/a'" in result.output


def test_ctrl_c_is_no_error():
    result = run("tune", "tuned_script:stopped")
    assert result.exit_code == 130
    assert "the same command resumes the search" in result.output


def test_without_optuna_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = run("tune", "tuned_script:make_run")
    assert result.exit_code == 2
    assert "pip install 'csgmcmc[tune]'" in result.output


def start(*arguments: str):
    """The command in a process of its own, which hears Ctrl-C."""
    return subprocess.Popen(
        [sys.executable, "-c", "from csgmcmc.cli import app; app()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def reports() -> int:
    """How many scores the trials of the search have reported."""
    journal = Path("runs/a/trials.jsonl")
    return journal.read_text().count('intermediate_value"') if journal.exists() else 0


def wait_for_a_report(process) -> list[int]:
    """Until one more trial has reported a score; the processes that run them."""
    before = reports()
    while process.poll() is None and reports() == before:
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()[0]
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(one) for one in found if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.filterwarnings("ignore::csgmcmc.errors.SamplingWarning")  # of what is best here
def test_a_search_on_two_processes_that_was_stopped_goes_on(tmp_path):
    command = ["tune", "tuned_script:slowly", "--out", "runs/a", "--epochs", "12", "--lr", "0.1"]
    command += ["--trials", "4", "--jobs", "2"]
    process = start(*command)
    assert len(wait_for_a_report(process)) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 130, output
    assert output.splitlines()[-1] == "csgmcmc: stopped; the same command resumes the search"
    assert "Traceback" not in output
    kept = len(read_trials("runs/a"))
    assert kept < 4

    process = start(*command)
    workers = wait_for_a_report(process)
    os.kill(workers[-1], signal.SIGKILL)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 2, output
    assert "csgmcmc: a process was killed" in output.splitlines()[-1]
    assert "Traceback" not in output
    assert len(read_trials("runs/a")) >= kept

    process = start(*command)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert len(read_trials("runs/a")) == 4
    assert "best: lr 0.1, cycles" in output
