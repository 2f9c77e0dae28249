"""Bad input of the commands is one line and exit code 2, never a traceback; see also test_fuzz."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from csgmcmc.cli import app
from csgmcmc.draws import DrawStore
from tests.chain.support import make_chain
from tests.cli.scripts import CLASSES

RECORD = {
    "run": "mine:make_run",
    "chains": 1,
    "cycles": 2,
    "draws": 6,
    "seconds": 1.5,
    "average": {"error": 0.1, "NLL": 0.3, "ECE": 0.1},
    "draw": {"error": 0.2, "NLL": 0.4, "ECE": 0.1},
    "check": "sampling: yes",
    "why": None,
}


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def said(result):
    """The one line of an error."""
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert line.startswith("csgmcmc: ")
    return line


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.py").write_text(CLASSES)
    return tmp_path


def test_words_that_mean_something_to_rich_are_shown_as_they_are(tmp_path):
    store = tmp_path / "[bold]x[" / "y]"
    draws = DrawStore(store, provenance={"note": "see [/refs]"})
    make_chain(store, draws=draws).run()
    result = run("inspect", store)
    assert result.exit_code == 0, (result.output, result.exception)
    assert "see [/refs]" in result.output
    (store / "run.json").write_text(json.dumps({**RECORD, "check": "[/no]"}))
    result = run("report", store)
    assert result.exit_code == 0, (result.output, result.exception)
    assert "[bold]x[" in result.output
    assert "[/no]" in result.output


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    store = tmp_path_factory.mktemp("finished") / "store"
    make_chain(store).run()
    return store


HUGE = 10**400  # JSON holds it, a float does not

WRONG = {
    "run": [5, None, {}],
    "chains": ["x", None, -1, [], 1.5, HUGE],
    "cycles": ["x", None, HUGE],
    "draws": ["x", {}, -1, HUGE],
    "seconds": ["x", None, [], HUGE],
    "average": ["x", [1], {"error": "x"}, {"error": HUGE}],
    "draw": [5, {"NLL": None}],
    "check": [5],
    "why": [[]],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_record_with_a_wrong_field_is_named(finished, name, value):
    (finished / "run.json").write_text(json.dumps({**RECORD, name: value}))
    line = said(run("report", finished))
    assert "run.json is damaged" in line
    assert name in line


@pytest.mark.parametrize("name", [name for name in RECORD if name not in ("run", "chains")])
def test_a_record_that_lacks_a_field_is_named(finished, name):
    rest = {field: value for field, value in RECORD.items() if field != name}
    (finished / "run.json").write_text(json.dumps(rest))
    assert f"it has no {name}" in said(run("report", finished))


@pytest.mark.parametrize("text", [b"\xff", b"{", b"[]", b"5", b"[" * 100_000])
def test_a_record_that_is_none_is_named(finished, text):
    (finished / "run.json").write_bytes(text)
    assert "run.json is not" in said(run("report", finished))


def test_scores_that_are_not_finite_are_shown(finished):
    scores = {**RECORD["average"], "NLL": float("inf")}
    (finished / "run.json").write_text(json.dumps({**RECORD, "average": scores}))
    assert "inf" in run("report", finished).output


def test_run_refuses_a_damaged_record(folder):
    out = folder / "runs" / "mine"
    out.mkdir(parents=True)
    (out / "run.json").write_text(json.dumps({**RECORD, "chains": "x"}))
    line = said(run("run", "mine:make_run", "--lr", "0.1"))
    assert "run.json is damaged: chains must be a whole number, got 'x'" in line
    assert [path.name for path in out.iterdir()] == ["run.json"]


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_seed_of_many_digits(folder, command):
    line = said(run(command, "mine:make_run", "--seed", 10**23))
    assert f"seed must be below {2**63}, got {10**23}" in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seed", 10**23],
        ["--chains", 10**9],
        ["--seeds", 10**9],
        ["--steps", 10**12],
    ],
)
def test_sizes_of_the_demo_have_limits(tmp_path, arguments):
    assert "must be below" in said(run("demo", "--out", tmp_path, *arguments))


def test_a_recipe_with_a_large_seed_is_named(folder):
    (folder / "recipe.json").write_text(json.dumps({"seed": 10**23, "lr": 0.1}))
    line = said(run("run", "mine:make_run", "--config", "recipe.json"))
    assert "recipe.json: seed must be below" in line


@pytest.mark.parametrize("text", [b"\xff", b"{", b"[" * 100_000])
def test_a_recipe_that_is_not_json_is_named(folder, text):
    (folder / "recipe.json").write_bytes(text)
    line = said(run("run", "mine:make_run", "--config", "recipe.json"))
    assert "recipe.json is not JSON" in line


@pytest.mark.parametrize(
    "script", ["builtins:dict", "mine:CLASSES", "\ud800:x", "a..b:c", "no such:f", ":", "x:", ""]
)
def test_what_is_no_script_is_said(folder, script):
    said(run("run", script))


@pytest.mark.parametrize("option", ["--out", "--config"])
def test_a_name_that_is_too_long(folder, option):
    said(run("run", "mine:make_run", option, "x" * 5000))


def test_environment_variables_of_torchrun(folder, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert "WORLD_SIZE must be a whole number" in said(run("run", "mine:make_run", "--lr", "0.1"))
