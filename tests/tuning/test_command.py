import sys

import pytest
from typer.testing import CliRunner

from csgmcmc import Recipe
from csgmcmc.cli import app

SCRIPT = """
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
