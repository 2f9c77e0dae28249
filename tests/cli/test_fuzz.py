"""The commands with good and bad arguments and files: a result, or one line and exit code 2.

Commands and their options are discovered. The script is a small one of this test: errors of a
user's own code are shown with a traceback, which this does not look at.
"""

import json
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

import csgmcmc.demo
from csgmcmc import Recipe
from csgmcmc.cli import app
from csgmcmc.planning import Machine, Sizes, Step
from csgmcmc.report import Report
from tests.chain.support import make_chain
from tests.cli.scripts import CLASSES
from tests.cli.test_inputs import RECORD
from tests.fuzzing import fuzz

COMMANDS: dict[str, Any] = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]

TEXTS = [
    *("", "x", "-1", "0", "1", "2", "0.5", "nan", "inf", "-inf", "1e308", "1e-320", "1.5", "[/b]"),
    *(
        "9" * 23,
        "9" * 5000,
        "a:b",
        "mine:make_run",
        "mine:",
        ":x",
        "mine.py:make_run",
        "mine:CLASSES",
    ),
    *("builtins:dict", "store", "file", "missing/deep", "x" * 300, "o/[bold]x[/y]", "é", "\udcff"),
    *(
        "SGLD",
        "PSGLD",
        "digits",
        "recipe.json",
        "--",
        "-",
        "~",
        "..",
        "/dev/null",
        "/proc/1/x",
        "\n",
    ),
]
WORDS = st.sampled_from(TEXTS) | st.text(st.characters(exclude_characters="\0"), max_size=8)

SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)
RECIPE = json.loads(Recipe(lr=0.1, epochs=4, cycles=2).to_json())
# Long runs are no error.
LENGTHS = ("epochs", "cycles", "draws_per_cycle", "weight_decay_scales", "temperature_scales")


@st.composite
def documents(draw: Any, whole: dict[str, Any], fixed: tuple[str, ...] = ()) -> bytes:
    """A JSON file with some fields changed or left out; sometimes no JSON at all."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=20) | st.just(b"[" * 10_000))
    if draw(st.integers(0, 9)) == 0:
        return json.dumps(draw(VALUES)).encode()
    names = [name for name in whole if name not in fixed]
    changed = draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=2))
    absent = draw(st.sets(st.sampled_from(names), max_size=1))
    kept = {name: value for name, value in {**whole, **changed}.items() if name not in absent}
    return json.dumps(kept).encode()


@st.composite
def command_lines(draw: Any) -> tuple[list[str], dict[str, bytes]]:
    """The words of a command, and files of the folder that it runs in."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    usual = {"script": "mine:make_run", "store": "store", "folder": "store"}
    words = [name]
    for each in COMMANDS[name].params:
        if each.param_type_name == "argument":
            words.append(usual[each.name] if draw(st.integers(0, 3)) else draw(WORDS))
        elif each.name == "config" and draw(st.booleans()):
            words += ["--config", "recipe.json"]
        elif draw(st.integers(0, 3)) == 0:
            words.append(draw(st.sampled_from([*each.opts, *each.secondary_opts])))
            if not each.is_flag or draw(st.integers(0, 9)) == 0:
                words.append(draw(WORDS))
    if name == "plan" and draw(st.booleans()):  # without a script
        words[1:2] = ["--parameters", "1e9", "--step-seconds", "0.1", "--steps", "1000"]
    if name == "run" and draw(st.booleans()):
        words += ["--out", "store"]
    files = {
        "store/run.json": draw(documents(RECORD)),
        "recipe.json": draw(documents(RECIPE, fixed=LENGTHS)),
    }
    return words, files


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run") / "store"
    make_chain(path).run()
    return path


@pytest.fixture
def _quick(monkeypatch):
    """What takes long is not run: the demo, searches, processes, measurements, figures of pages."""
    for name in ("mixture", "regression", "moons", "digits"):
        monkeypatch.setattr(csgmcmc.demo, f"show_{name}", lambda *_: None)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def in_sequence(function: Any, calls: Any, **_: Any) -> Any:
        return ((key, function(*arguments)) for key, arguments in calls)

    monkeypatch.setattr("csgmcmc.cli.sampling.side_by_side", in_sequence)
    monkeypatch.setattr("csgmcmc.tuning.search._Search.find_lr", stop)
    measured = Sizes(1e6, 1e6, draw=1e6), Machine(Step(0.1, 0.1, 0.1))
    monkeypatch.setattr("csgmcmc.cli.plan.measure_task", lambda *_, **__: measured)
    wire = {"bandwidth": 1e9, "latency": 1e-4, "crowding": 1.1}
    monkeypatch.setattr("csgmcmc.cli.plan.measure_wire", lambda *_: wire)
    monkeypatch.setattr("csgmcmc.report.page.make_report", lambda _: Report("a page"))


def check(case: tuple[list[str], dict[str, bytes]], store: Path) -> None:
    words, files = case
    before, paths = os.getcwd(), list(sys.path)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        os.chdir(folder)
        try:
            Path("mine.py").write_text(CLASSES)
            Path("file").write_text("")
            Path("store").mkdir()
            for part in ("store.json", "chains", "draws"):
                Path("store", part).symlink_to(store / part)
            for name, content in files.items():
                Path(name).write_bytes(content)
            result = CliRunner().invoke(app, words)
        finally:
            os.chdir(before)
            sys.path[:] = paths
            sys.modules.pop("mine", None)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2, 130), result.output
    assert "Traceback" not in result.output
    if result.exit_code == 2 and "Usage:" not in result.stderr:
        errors = [line for line in result.stderr.splitlines() if line.startswith("csgmcmc: ")]
        assert len(errors) == 1, result.stderr
        assert re.fullmatch(r"csgmcmc: .+\n", result.stderr), result.stderr


def test_every_argument_has_a_usual_value():
    names = {each.name for one in COMMANDS.values() for each in one.params}
    assert {"script", "store", "folder", "config", "seed"} <= names


@pytest.mark.slow
@pytest.mark.usefixtures("_quick")
def test_fuzz_commands(store):
    fuzz(command_lines(), lambda case: check(case, store), examples=1000)
