"""`csgmcmc run`, as a user with a script in a folder sees it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from csgmcmc import DrawStore, Recipe, cli
from csgmcmc.cli import app
from tests.cli.scripts import CLASSES, REGRESSION

# 24 steps a chain
SHORT = ["--epochs", "6", "--cycles", "2", "--draws-per-cycle", "2", "--lr", "0.1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(CLASSES)
    (tmp_path / "numbers_.py").write_text(REGRESSION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    forget()
    yield tmp_path
    forget()


def forget():
    """Scripts of other folders have the same names."""
    for name in ("mine", "numbers_"):
        sys.modules.pop(name, None)


def run(*arguments):
    forget()
    return CliRunner().invoke(app, ["run", *arguments])


def same_draws(one, other):
    first, second = DrawStore(one), DrawStore(other)
    assert list(first) == list(second)
    return all(
        torch.equal(tensor, second[number].tensors()[name])
        for number, draw in enumerate(first)
        for name, tensor in draw.tensors().items()
    )


def test_a_run_keeps_draws_and_says_what_they_are_worth(folder):
    result = run("mine:make_run", *SHORT)
    assert result.exit_code == 0, result.output
    for words in ("runs/mine: 4 draws, 2 cycles, 1 chain", "average of 4 draws", "mean draw"):
        assert words in result.output
    assert "more --epochs" in result.output  # in the words of the command
    for words in ("error %", "NLL", "ECE", "sampling", "mixing", "calibrated", "better"):
        assert words in result.output
    assert len(DrawStore("runs/mine")) == 4
    record = json.loads((folder / "runs/mine/run.json").read_text())
    # By Jensen's inequality the average is no worse than its draws in the mean.
    assert record["average"]["NLL"] <= record["draw"]["NLL"]
    assert 0 <= record["average"]["error"] <= 0.5

    files = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*.*")}
    again = run("mine:make_run", *SHORT)
    assert again.exit_code == 0
    assert "runs/mine is finished already" in again.output
    assert "average of 4 draws" in again.output
    assert files == {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*.*")}

    printed = CliRunner().invoke(app, ["report", "runs/mine"])
    assert printed.exit_code == 0, printed.output
    text, page = printed.output[:-1].rsplit("\n", 1)
    assert text in again.output
    assert page == "page: runs/mine/report.html"


def test_options_go_before_the_file_and_that_before_the_script(folder):
    (folder / "some.json").write_text('{"lr": 0.2, "exploration": 0.5, "cycles": 3}')
    result = run("mine.py:with_recipe", "--config", "some.json", "--cycles", "1", "--out", "a")
    assert result.exit_code == 0, result.output
    made = Recipe.load("a/recipe.json")
    assert made == Recipe(lr=0.2, cycles=1, epochs=6, draws_per_cycle=1, exploration=0.5, seed=5)
    assert "no scores: the script returns no validation data" in result.output
    # The recipe that was kept repeats the run, from any folder.
    again = run("mine:with_recipe", "--config", "a/recipe.json", "--out", "b")
    assert again.exit_code == 0, again.output
    assert same_draws("a", "b")


@pytest.fixture(scope="module")
def two_chains(tmp_path_factory):
    """A run of two chains that nothing has happened to."""
    path = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        (path / "mine.py").write_text(CLASSES)
        patch.chdir(path)
        patch.setattr(sys, "path", sys.path.copy())
        assert run("mine:make_run", *SHORT, "--chains", "2", "--out", "out").exit_code == 0
    return path / "out"


PROGRAM = [sys.executable, "-c", "from csgmcmc.cli import app; app()", "run"]


def start(*arguments):
    """The command in a process of its own, which hears Ctrl-C.

    A shell that starts tests in the background lets them and theirs ignore it.
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


def wait_for_draws(process, *chains):
    """Until each chain has a draw, or the process has ended."""
    paths = [Path(f"out/chains/{chain:04d}.manifest") for chain in chains]
    while process.poll() is None:
        if all(path.exists() and path.read_text().count("\n") > 1 for path in paths):
            return
        time.sleep(0.02)
    pytest.fail(process.communicate()[0])


def ended(process):
    """What a process has said; one that hangs says where."""
    try:
        return process.communicate(timeout=400)[0]
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # the stack of every thread
        pytest.fail(process.communicate()[0])


# Ctrl-C may come between the file of a draw and its line in the manifest.
@pytest.mark.filterwarnings("ignore:.*not in a manifest, ignored:csgmcmc.errors.StoreWarning")
def test_a_run_that_was_stopped_by_ctrl_c_goes_on_exactly(two_chains, folder):
    arguments = ["mine:make_run", *SHORT, "--chains", "2", "--out", "out"]
    (folder / "slow").write_text("35")  # chain 1 has its first draw after so many calls
    process = start(*arguments)
    wait_for_draws(process, 1)
    process.send_signal(signal.SIGINT)
    output = ended(process)
    assert process.returncode == 130, output
    # A draw whose step was not finished is not counted, and is found again.
    stopped = r"csgmcmc: chain 1 was stopped at step \d+ of 24 with [0-3] of 4 draws; the same "
    stopped += r"command goes on from step \d+"
    assert re.fullmatch(stopped, output.splitlines()[-1])
    assert "Traceback" not in output
    assert 4 < len(DrawStore("out")) < 8
    (folder / "slow").unlink()
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "8 draws, 4 cycles, 2 chains" in result.output
    assert same_draws(two_chains, "out")


def test_chains_differ_and_more_of_them_can_be_added():
    assert run("mine:with_generator", *SHORT, "--chains", "2", "--out", "a").exit_code == 0
    one, other = (DrawStore("a").of_chain(chain)[0].tensors()["0.weight"] for chain in range(2))
    assert not torch.allclose(one, other)
    assert run("mine:with_generator", *SHORT, "--out", "b").exit_code == 0
    result = run("mine:with_generator", *SHORT, "--out", "b", "--chains", "2")
    assert result.exit_code == 0, result.output
    assert "8 draws, 4 cycles, 2 chains" in result.output
    assert same_draws("a", "b")
    # With fewer chains than there are the report is of all.
    result = run("mine:with_generator", *SHORT, "--out", "b", "--chains", "1", "--report")
    assert "8 draws, 4 cycles, 2 chains" in result.output


def test_what_is_frozen_is_kept_once_and_is_the_same_in_all_chains(folder):
    result = run("mine:frozen", *SHORT, "--chains", "2")
    assert result.exit_code == 0, result.output
    store = DrawStore("runs/mine")
    assert (folder / "runs/mine/base.safetensors").exists()
    first, last = store[0].tensors(), store[-1].tensors()
    assert torch.equal(first["0.weight"], last["0.weight"])
    assert not torch.equal(first["3.weight"], last["3.weight"])


def test_a_run_that_diverges_says_where(folder):
    (folder / "diverge").touch()
    result = run("mine:make_run", *SHORT)
    assert result.exit_code == 2
    assert "chain 0 diverged: the loss is not finite at step 14" in result.output
    assert len(result.output.splitlines()) == 1


def test_numbers_are_scored_by_their_error():
    result = run("numbers_:make_run")
    assert result.exit_code == 0, result.output
    for words in ("RMSE", "NLL", "90% intervals"):
        assert words in result.output
    forgotten = run("numbers_:forgotten", "--out", "other", "--lr", "0.01")
    assert forgotten.exit_code == 0, forgotten.output
    assert "no scores: targets are not integers" in forgotten.output
    assert len(DrawStore("other")) == 12


def test_a_report_can_be_left_out_and_made_later():
    result = run("mine:make_run", *SHORT, "--no-report")
    assert "no scores: --no-report" in result.output
    assert "no scores: --no-report" in run("mine:make_run", *SHORT).output
    assert "average of 4 draws" in run("mine:make_run", *SHORT, "--report").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine"], "'mine' must be MODULE:FUNCTION"),
        (["nothing:make_run"], "there is no module 'nothing' in this folder"),
        (["nothing.py:make_run"], "there is no file nothing.py"),
        (["mine:nothing"], "mine has no function 'nothing'"),
        (["mine:wants"], "mine:wants must take no arguments, but requires something"),
        (["mine:not_a_task"], "the function must return (model, loss, data)"),
        (["mine:no_module"], "model must be a torch.nn.Module, got str"),
        (["mine:same_model", "--chains", "2", *SHORT], "make the model inside the function"),
        (["mine:make_run", "--chains", "0"], "chains must be at least 1, got 0"),
        (["mine:make_run", "--jobs", "0"], "jobs must be at least 1, got 0"),
        (["mine:same_model", "--chains", "2", "--jobs", "2"], "make the model inside the function"),
        (["mine:make_run", "--lr", "-1"], "lr must be above 0, got -1.0"),
        (["mine:make_run", "--sampler", "SGD"], "sampler must be one of 'PSGLD', 'SGHMC'"),
        (["mine:make_run", "--epochs", "1"], "too few for draws_per_cycle=3"),
        (
            ["mine:make_run", "--config", "no.json"],
            "there is no file no.json, which --config names",
        ),
        (["mine:make_run", "--out", "mine.py"], "mine.py, which --out names, is a file"),
        (["mine:make_run", "--config", "bad.json"], "bad.json has beta, which no recipe has"),
        (["mine:make_run", "--config", "new.json"], "seed must be a number"),
    ],
)
def test_what_is_wrong_is_one_sentence(folder, arguments, words):
    (folder / "bad.json").write_text('{"beta": 0.8}')
    (folder / "new.json").write_text('{"seed": null}')
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.output
    assert len(result.output.splitlines()) == 1
    assert not list(folder.glob("runs/*/draws/*"))


def test_what_was_wrong_can_be_mended_in_the_same_folder():
    assert run("mine:with_recipe", "--epochs", "0.1").exit_code == 2
    result = run("mine:with_recipe")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("function", "words"), [("wrong", "the script's own trouble"), ("wrong_loss", "batch_size")]
)
def test_what_the_script_does_wrong_is_shown_with_its_place(function, words):
    result = run(f"mine:{function}")
    assert isinstance(result.exception, ValueError)
    assert words in str(result.exception)


def test_a_folder_of_another_run_is_left_alone(folder):
    assert run("mine:make_run", *SHORT, "--no-report").exit_code == 0
    for arguments, words in [
        (["mine:make_run", *SHORT, "--lr", "0.2"], "other settings (lr was 0.1 and is 0.2 now)"),
        (["mine:make_run", *SHORT, "--no-resume"], "runs/mine holds a run already"),
        (["mine:frozen", *SHORT], "runs/mine holds a run of mine:make_run: use another --out"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 2
        assert words in result.output
    (folder / "runs/mine/recipe.json").unlink()
    assert "that are not from csgmcmc run" in run("mine:make_run", *SHORT).output
    assert len(DrawStore("runs/mine")) == 4


def test_a_run_that_was_killed_has_the_name_of_its_script(monkeypatch):
    def killed(*arguments, **options):
        assert json.loads(Path("runs/mine/run.json").read_text())["run"] == "mine:make_run"
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.run, "sample", killed)
    assert run("mine:make_run", *SHORT).exit_code == 130
    assert "holds a run of mine:make_run" in run("mine:frozen", *SHORT).output


@pytest.mark.filterwarnings("default::csgmcmc.errors.SamplingWarning")
def test_a_warning_is_one_line():
    result = run("mine:make_run", *SHORT, "--lr", "60", "--no-report")
    (line,) = [line for line in result.output.splitlines() if "is too high" in line]
    assert line.startswith("csgmcmc: chain 0: the loss jumped to ")
    assert "Warning" not in result.output


def test_a_folder_of_version_0_1_is_named(folder):
    (folder / "old").mkdir()
    (folder / "old/recipe.json").write_text('{"lr": 0.1, "options": {}, "samples_per_cycle": 3}')
    for arguments in (["--out", "old"], ["--config", "old/recipe.json"]):
        result = run("mine:make_run", *arguments)
        assert result.exit_code == 2
        assert "old/recipe.json has names of csgmcmc 0.1: options is now" in result.output


def test_a_script_that_has_changed_does_not_go_on(folder):
    (folder / "stop").write_text("15")
    assert run("mine:make_run", *SHORT).exit_code == 130
    (folder / "mine.py").write_text(CLASSES.replace("8)", "9)").replace("Linear(8", "Linear(9"))
    result = run("mine:make_run", *SHORT)
    assert result.exit_code == 2
    assert "cannot resume: model.0.weight was (8, 4)" in result.output
    assert "use another --out, or delete runs/mine" in result.output


def test_report_of_a_run_that_was_stopped_is_of_what_there_is(folder):
    (folder / "stop").write_text("15")
    assert run("mine:make_run", *SHORT).exit_code == 130
    result = CliRunner().invoke(app, ["report", "runs/mine"])
    assert result.exit_code == 0, result.output
    assert "runs/mine: no scores, which csgmcmc run adds at the end of a run" in result.output
    assert "csgmcmc inspect runs/mine" in result.output
    page = (folder / "runs/mine/report.html").read_text()
    assert 'id="trace"' in page
    assert 'id="scores"' not in page
    assert "csgmcmc run measures them at the end of the run." in page


def children_of(process_id):
    """Numbers of the processes that a process has started, and that are no helper of Python's."""
    found = Path(f"/proc/{process_id}/task/{process_id}/children").read_text().split()
    children = []
    for one in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            if "spawn_main" in Path(f"/proc/{one}/cmdline").read_text():
                children.append(int(one))
    return children


def is_alive(process_id):
    """A process that has ended, and that nobody has asked about yet, is not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")


def test_chains_side_by_side_are_those_in_sequence(two_chains):
    result = run("mine:make_run", *SHORT, "--chains", "2", "--jobs", "4", "--out", "out")
    assert result.exit_code == 0, result.output
    assert "8 draws, 4 cycles, 2 chains" in result.output
    assert "average of 8 draws" in result.output
    assert same_draws(two_chains, "out")


def test_generators_of_the_script_are_those_of_a_run_in_sequence():
    arguments = ["mine:with_numpy", *SHORT, "--chains", "2", "--out"]
    assert run(*arguments, "a").exit_code == 0
    result = run(*arguments, "b", "--jobs", "2")
    assert result.exit_code == 0, result.output
    assert same_draws("a", "b")


# Chains may be stopped between the file of a draw and its line in the manifest.
@needs_proc
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*not in a manifest, ignored:csgmcmc.errors.StoreWarning")
def test_chains_that_were_stopped_side_by_side_go_on_exactly(two_chains, folder):
    """Stopped by Ctrl-C, then killed, then finished by the same command."""
    arguments = ["mine:make_run", *SHORT, "--chains", "2", "--jobs", "2", "--out", "out"]
    (folder / "slow").write_text("11")  # each has its first draw after so many calls
    process = start(*arguments)
    wait_for_draws(process, 0, 1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output = ended(process)
    assert process.returncode == 130, output
    assert output.splitlines()[-1] == "csgmcmc: stopped; the same command resumes the run"
    assert "Traceback" not in output
    kept = len(DrawStore("out"))
    assert 2 <= kept < 8

    process = start(*arguments)
    workers: list[int] = []
    while process.poll() is None and len(workers) < 2:
        workers = children_of(process.pid)
        time.sleep(0.02)
    os.kill(workers[1], signal.SIGKILL)
    output = ended(process)
    assert process.returncode == 2, output
    line = "csgmcmc: a process was killed, perhaps because memory ran out; the others were stopped"
    assert output.splitlines()[-1] == f"{line}; the same command goes on"
    assert "Traceback" not in output
    assert len(DrawStore("out")) >= kept

    (folder / "slow").unlink()
    process = start(*arguments)
    output = ended(process)
    assert process.returncode == 0, output
    assert "8 draws, 4 cycles, 2 chains" in output
    assert same_draws(two_chains, "out")


@needs_proc
@pytest.mark.slow
def test_workers_end_with_a_command_that_was_killed(folder):
    (folder / "slow").write_text("11")
    process = start("mine:make_run", *SHORT, "--chains", "2", "--jobs", "2", "--out", "out")
    wait_for_draws(process, 0, 1)
    workers = children_of(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    ends = time.monotonic() + 100
    while any(map(is_alive, workers)):
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("wrong_loss", 1, "Expected input batch_size"),
        ("diverges", 2, "csgmcmc: chain 1 diverged: the loss is not finite at step 3"),
    ],
)
def test_what_goes_wrong_in_a_process_is_told_as_in_this_one(folder, function, code, words):
    arguments = (f"mine:{function}", *SHORT, "--chains", "2", "--jobs", "2")
    result = run(*arguments, "--out", "out")
    process = start(*arguments, "--out", "other")
    output = ended(process)
    assert process.returncode == result.exit_code == code, output
    assert words in output
    assert ("Traceback" in output) is (code == 1)
    if code == 2:  # chain 0 may have ended, and said so, before chain 1 began
        *progress, last = output.splitlines()
        assert last.startswith(words), output
        assert all(line.startswith("chain 0: step ") for line in progress), output


def test_processes_of_torchrun_start_no_others(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    result = run("mine:make_run", *SHORT, "--chains", "2", "--jobs", "2")
    assert result.exit_code == 2
    assert "jobs=2 cannot be used under torchrun" in result.output


def test_a_run_of_several_chains_names_the_option(monkeypatch):
    monkeypatch.setattr(cli.run, "cores", lambda: 4)
    result = run("mine:make_run", *SHORT, "--chains", "2", "--no-report")
    assert result.output.startswith("2 chains in sequence; --jobs 2 runs 2 side by side")
    monkeypatch.setattr(cli.run, "cores", lambda: 1)
    assert "--jobs" not in run("mine:make_run", *SHORT, "--chains", "2", "--out", "b").output


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
    result = torchrun("mine:make_run", *SHORT, "--out", "out")
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.count("out: 8 draws, 4 cycles, 2 chains") == 1
    assert same_draws(two_chains, "out")


@pytest.mark.slow
def test_two_processes_of_one_chain_divide_the_data(folder):
    arguments = ["mine:make_run", *SHORT, "--epochs", "12", "--chains", "1"]
    result = torchrun(*arguments)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "runs/mine: 4 draws, 2 cycles, 1 chain" in result.stdout
    # Batches of each process are as large as before, so that an epoch has half the steps.
    assert DrawStore("runs/mine")[-1].step == 23
    again = torchrun(*arguments)
    assert again.returncode == 0
    assert "runs/mine is finished already" in again.stderr


def test_a_run_that_is_judged_again_has_the_same_verdict(folder):
    assert run("mine:make_run", *SHORT).exit_code == 0
    first = json.loads((folder / "runs/mine/run.json").read_text())
    assert run("mine:make_run", *SHORT, "--report").exit_code == 0
    again = json.loads((folder / "runs/mine/run.json").read_text())
    assert "times that of the minibatches" in first["check"]
    assert again["check"] == first["check"]
