"""`csgmcmc run`, as a user with a script in a folder sees it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from csgmcmc import DrawStore
from csgmcmc.cli import app
from tests.cli.scripts import SCRIPT


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    sys.modules.pop("mine", None)


def run(*arguments):
    sys.modules.pop("mine", None)  # that of another folder, or before it was changed
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def same_draws(one, other):
    first, second = DrawStore(one), DrawStore(other)
    assert list(first) == list(second)
    return all(
        torch.equal(tensor, second[number].tensors()[name])
        for number, draw in enumerate(first)
        for name, tensor in draw.tensors().items()
    )


def test_a_run_keeps_draws_and_prints_where_they_are(folder):
    result = run("mine.py:make_chain")
    assert result.exit_code == 0, result.output
    assert "runs/mine: 4 draws of 1 chain" in result.output
    assert "csgmcmc inspect runs/mine" in result.output
    assert len(DrawStore("runs/mine")) == 4

    def written():
        return {path: path.stat().st_mtime_ns for path in (folder / "runs/mine/draws").iterdir()}

    before = written()
    again = run("mine.py:make_chain")
    assert again.exit_code == 0, again.output
    assert "4 draws of 1 chain" in again.output
    assert written() == before
    assert run("mine.py:make_chain", "--no-resume").exit_code == 2


def test_a_script_with_a_store_of_its_own():
    result = run("mine.py:own_store")
    assert result.exit_code == 0, result.output
    assert "own: 4 draws of 1 chain" in result.output
    assert not Path("runs/mine/draws").exists()


@pytest.fixture(scope="module")
def two_chains(tmp_path_factory):
    """An undisturbed run of two chains."""
    path = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        (path / "mine.py").write_text(SCRIPT)
        patch.chdir(path)
        patch.setattr(sys, "path", sys.path.copy())
        assert run("mine.py:make_chain", "--chains", 2, "--out", "out").exit_code == 0
    return path / "out"


PROGRAM = [sys.executable, "-c", "from csgmcmc.cli import app; app()", "run"]


def start(*arguments):
    """Start the command in a process that does not ignore Ctrl-C.

    A shell that starts tests in the background lets them and their children ignore it.
    """
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_resume_after_ctrl_c_gives_the_same_draws(two_chains, folder):
    arguments = ["mine.py:make_chain", "--chains", "2", "--out", "out"]
    (folder / "slow").write_text("35")  # chain 1 has its first draw after so many calls
    process = start(*arguments)
    manifest = folder / "out" / "chains" / "0001.manifest"
    while process.poll() is None:
        if manifest.exists() and manifest.read_text().count("\n") > 1:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=400)[0]
    assert process.returncode == 130, output
    stopped = r"csgmcmc: chain 1 .* step \d+ .*; the same command resumes the run"
    assert re.fullmatch(stopped, output.splitlines()[-1])
    assert "Traceback" not in output
    assert 4 < len(DrawStore("out")) < 8
    (folder / "slow").unlink()
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "8 draws of 2 chains" in result.output
    assert same_draws(two_chains, "out")


@pytest.mark.parametrize("function", ["make_chain", "with_generator", "with_numpy"])
def test_chains_differ_and_more_can_be_added(function):
    assert run(f"mine.py:{function}", "--chains", 2, "--out", "a").exit_code == 0
    one, other = (DrawStore("a").of_chain(chain)[0].tensors()["0.weight"] for chain in range(2))
    assert not torch.allclose(one, other)
    assert run(f"mine.py:{function}", "--out", "b").exit_code == 0
    result = run(f"mine.py:{function}", "--out", "b", "--chains", 2)
    assert result.exit_code == 0, result.output
    assert "8 draws of 2 chains" in result.output
    assert same_draws("a", "b")


def test_frozen_weights_are_stored_once(folder):
    result = run("mine.py:frozen", "--chains", 2)
    assert result.exit_code == 0, result.output
    store = DrawStore("runs/mine")
    first, last = store[0].tensors(), store[-1].tensors()
    assert torch.equal(first["0.weight"], last["0.weight"])
    assert not torch.equal(first["3.weight"], last["3.weight"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine"], "FILE.py:FUNCTION"),
        (["nothing.py:make_chain"], "nothing.py"),
        (["mine.py:nothing"], "nothing"),
        (["mine.py:not_a_chain"], "Chain"),
        (["mine.py:in_memory"], "draws"),
        (["mine.py:without_chain_id", "--chains", 2], "chain_id"),
        (["mine.py:make_chain", "--chains", 0], "chains"),
        (["mine.py:make_chain", "--device", "cpu"], "device"),
        (["mine.py:on_device", "--device", "nowhere"], "device"),
        (["mine.py:make_chain", "--out", "mine.py"], "mine.py"),
        (["mine.py:bad_lr"], "lr"),
        (["mine.py:diverges", "--chains", 2], "chain 1 diverged"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    *_, line = result.stderr.splitlines()
    assert line.startswith("csgmcmc: ")
    assert words in line
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("function", "words"), [("wrong", "the script's own trouble"), ("wrong_loss", "batch_size")]
)
def test_an_error_of_the_script_keeps_its_traceback(function, words):
    result = run(f"mine.py:{function}")
    assert isinstance(result.exception, ValueError)
    assert words in str(result.exception)


def test_the_function_receives_the_device(folder):
    result = run("mine.py:on_device", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert (folder / "device").read_text() == "cpu"


@pytest.mark.filterwarnings("default::csgmcmc.errors.SamplingWarning")
def test_a_warning_is_one_line():
    result = run("mine.py:too_hot")
    (line,) = [line for line in result.output.splitlines() if "is too high" in line]
    assert line.startswith("csgmcmc: chain 0")
    assert "Warning" not in result.output


def test_a_changed_script_does_not_resume(folder):
    (folder / "stop").write_text("15")
    assert run("mine.py:make_chain").exit_code == 130
    (folder / "mine.py").write_text(SCRIPT.replace("8)", "9)").replace("Linear(8", "Linear(9"))
    result = run("mine.py:make_chain")
    assert result.exit_code == 2
    assert "0.weight" in result.output
    assert "use another folder" in result.output


def test_report_of_a_stopped_run(folder):
    (folder / "stop").write_text("15")
    assert run("mine.py:make_chain").exit_code == 130
    result = CliRunner().invoke(app, ["report", "runs/mine"])
    assert result.exit_code == 0, result.output
    page = (folder / "runs/mine/report.html").read_text()
    assert 'id="trace"' in page
    assert 'id="scores"' not in page


def torchrun(*arguments):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc-per-node=2", "--no-python", *PROGRAM, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_chains_on_two_processes_are_those_of_one(two_chains):
    result = torchrun("mine.py:make_chain", "--out", "out")
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.count("out: 8 draws of 2 chains") == 1
    assert same_draws(two_chains, "out")


@pytest.mark.slow
def test_two_processes_share_a_chain():
    result = torchrun("mine.py:with_layout", "--chains", "1")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "runs/mine: 4 draws of 1 chain" in result.stdout
    wrong = torchrun("mine.py:make_chain", "--chains", "1", "--out", "other")
    assert wrong.returncode
    assert "layout" in wrong.stderr
