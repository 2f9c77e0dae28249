"""The commands with good and bad arguments: a result, or one line and exit code 2.

Commands and their options are discovered. Errors of a user's own code are shown with a traceback,
which this does not look at.
"""

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

from csgmcmc.cli import app
from csgmcmc.report import Report
from tests.fuzzing import fuzz
from tests.loop.support import make_chain

COMMANDS: dict[str, Any] = get_command(app).commands  # pyright: ignore[reportAttributeAccessIssue]
USUAL = {"folder": "store", "folders": "store"}
TEXTS = [
    *("", "x", "-1", "0", "1", "2", "0.5", "nan", "[/b]", "cpu", "cuda:99", "a:b", ":x"),
    *("mine:made", "mine.py:made", "mine.py:nothing", "mine.py:NUMBER"),
    *("mine.py:", "store", "file", "missing/deep", "o/[bold]x[/y]", "é", "--", "-", ".."),
    "/dev/null",
]
SCRIPT = """
NUMBER = 3

def made(draws):
    return draws
"""
WORDS = st.sampled_from(TEXTS) | st.text(st.characters(exclude_characters="\0"), max_size=8)


@st.composite
def command_lines(draw: Any) -> list[str]:
    """The words of a command."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    words = [name]
    for each in COMMANDS[name].params:
        if each.param_type_name == "argument":
            words.append(USUAL[each.name] if draw(st.integers(0, 3)) else draw(WORDS))
        elif draw(st.integers(0, 3)) == 0:
            words.append(draw(st.sampled_from([*each.opts, *each.secondary_opts])))
            if not each.is_flag or draw(st.integers(0, 9)) == 0:
                words.append(draw(WORDS))
    return words


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run") / "store"
    make_chain(path).run()
    return path


def check(words: list[str], store: Path) -> None:
    before, paths = os.getcwd(), list(sys.path)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        os.chdir(folder)
        try:
            Path("mine.py").write_text(SCRIPT)
            Path("file").write_text("")
            Path("store").mkdir()
            for part in ("store.json", "chains", "draws"):
                Path("store", part).symlink_to(store / part)
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
        assert re.fullmatch(r"csgmcmc: .+\n", result.stderr), result.stderr


def test_every_argument_has_a_usual_value():
    parameters = [each for command in COMMANDS.values() for each in command.params]
    names = {each.name for each in parameters if each.param_type_name == "argument"}
    assert names == set(USUAL)


@pytest.mark.slow
def test_fuzz_commands(store, monkeypatch):
    monkeypatch.setattr("csgmcmc.report.page.make_page", lambda *_: Report("a page"))
    fuzz(command_lines(), lambda words: check(words, store), examples=300)
