"""`csgmcmc plan`, with and without a script."""

import re
import shutil
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from csgmcmc.cli import app
from csgmcmc.planning.measure import measure_task
from tests.cli.scripts import CLASSES

WIRE = {"bandwidth": 1e9, "latency": 1e-4, "crowding": 1.1}
LARGE = ["--parameters", "7e9", "--step-seconds", "0.5", "--steps", "10000"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(CLASSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    sys.modules.pop("mine", None)

    def briefly(*args, **options):
        return measure_task(*args, seconds=0.01, **options)

    monkeypatch.setattr("csgmcmc.cli.plan.measure_task", briefly)
    monkeypatch.setattr("csgmcmc.planning.measure.PROBE", 10**5)
    monkeypatch.setattr("csgmcmc.cli.plan.measure_wire", lambda *_: WIRE)
    yield tmp_path
    sys.modules.pop("mine", None)


def plan(*arguments):
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


def shown(*arguments):
    result = plan(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def row(text, name):
    """What the table has for a name."""
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith(name)]
    return re.split(r"  +", line.strip())[1]


def test_a_script_is_measured_and_nothing_is_left(folder):
    text = shown("mine:make_run", "--epochs", "6", "--cycles", "2", "--draws-per-cycle", "2")
    assert "time: 1 chain of 24 steps on 1 process" in text
    assert "disk: 4 draws" in text
    assert row(text, "wire: a process") == "0 B"
    assert "prediction of a batch with all draws" in text
    assert {path.name for path in folder.iterdir()} <= {"mine.py", "__pycache__"}


def test_replicas_share_the_epochs_of_a_script():
    arguments = ["mine:make_run", "--epochs", "6", "--cycles", "2", "--processes", "2"]
    text = shown(*arguments, "--chains", "1", "--draws-per-cycle", "1")
    assert "1 chain of 12 steps on 2 processes" in text
    assert row(text, "wire: a process") == "232 B"  # 58 weights of four bytes
    split = shown(*arguments, "--chains", "1", "--draws-per-cycle", "1", "--split-batch")
    assert "1 chain of 24 steps on 2 processes" in split
    chains = shown(*arguments, "--draws-per-cycle", "1")
    assert "2 chains of 24 steps on 2 processes" in chains


def test_the_recipe_of_a_script_is_used():
    text = shown("mine:with_recipe", "--draws", "7")
    assert "of 24 steps" in text
    assert "7 draws" in text


def test_a_large_model_without_a_script():
    text = shown(*LARGE, "--chains", "64", "--replicas", "8", "--draws", "1000")
    assert "time: 64 chains of 1,250 steps on 512 processes" in text
    assert "a draw of 28 GB" in text
    assert "a checkpoint of 56 GB, every 12 steps" in text
    assert row(text, "memory of a process") == "140 GB"
    assert "1,024 draws" in text
    assert row(text, "disk") == "35.8 TB"  # 1,024 x 28 GB and 128 x 56 GB
    assert row(text, "wire: a process") == "49 GB"  # 2 x 7/8 x 28 GB
    assert "prediction" not in text


def test_adapters_and_narrow_draws_are_smaller():
    adapters = shown(*LARGE, "--trained", "2e7", "--only", "trainable", "--dtype", "bfloat16")
    assert "a draw of 40 MB" in adapters
    assert "a draw of 14 GB" in shown(*LARGE, "--dtype", "bfloat16")
    assert row(adapters, "memory of a process") == "28.2 GB"


def test_what_is_given_replaces_what_is_measured():
    text = shown("mine:make_run", "--step-seconds", "2", "--draw-seconds", "3", "--steps", "100")
    assert row(text, "a step") == "2 s"
    assert row(text, "a draw") == "3 s"
    text = shown("mine:make_run", "--noise-seconds", "14400", "--exploration", "0.5")
    assert row(text, "a step") == "2 h"  # the rest of it is measured, in less than a minute
    given = ["--checkpoint-seconds", "1", "--predict-seconds", "0.5", "--disk-bandwidth", "1e8"]
    text = shown(*LARGE, *given, "--draws", "10", "--replicas", "2", "--bandwidth", "28e9")
    assert row(text, "a checkpoint") == "1 s"
    assert row(text, "prediction") == "5 s"
    assert row(text, "a step") == "1.5 s"


def test_what_breaks_is_said():
    text = shown(*LARGE, "--memory", "80e9", "--disk", "1e12", "--replicas", "2")
    assert "breaks first, memory to resume: 168 GB of 80 GB" in text
    assert "fits with --shards --replicas 2" in text
    shards = shown(*LARGE, "--memory", "80e9", "--disk", "1e12", "--replicas", "2", "--shards")
    assert "breaks" not in shards


def test_failures_say_how_often_to_save():
    given = ["--checkpoint-seconds", "8", "--failures-per-hour", "1", "--restart-seconds", "0"]
    text = shown(*LARGE, *given)
    # Young's sqrt(2 x 8 x 3600) is 240 seconds, 480 steps; the exact optimum is a little less.
    every = int(re.findall(r"checkpoint_every=(\d+) \(every", text)[0])
    assert 460 < every < 480
    assert "leaves 93." in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give MODULE:FUNCTION, or --parameters"),
        (["mine:make_run", "--parameters", "3"], "give MODULE:FUNCTION, or --parameters"),
        (["--parameters", "7e9"], "give --step-seconds and --steps"),
        (["missing:make_run"], "there is no module 'missing'"),
        (["mine:make_run", "--cycles", "0"], "cycles must be at least 1"),
        (["mine:make_run", "--cycles", "99"], "epochs"),
        (["mine:make_run", "--config", "none.json"], "none.json cannot be read"),
        ([*LARGE, "--sampler", "Adam"], "sampler must be one of"),
        ([*LARGE, "--shards"], "give --replicas"),
        ([*LARGE, "--dtype", "int8"], "dtype must be one of 'float32'"),
        ([*LARGE, "--only", "biases"], "only must be one of 'trainable'"),
        ([*LARGE, "--trained", "8e9"], "trained must be at least 1 and at most 7e"),
        ([*LARGE, "--bandwidth", "nan"], "bandwidth must be finite"),
        ([*LARGE, "--failures-per-hour", "0"], "failures_per_hour must be at least 1e-30"),
        ([*LARGE, "--processes", "4", "--chains", "3"], "cannot be divided among processes=4"),
        ([*LARGE, "--failures-per-hour", "1e-306"], "failures_per_hour must be at least 1e-30"),
        ([*LARGE, "--disk-bandwidth", "1e-305"], "disk_bandwidth must be at least 1e-30"),
        ([*LARGE, "--noise-seconds", "-1"], "noise_seconds must be at least 0"),
        (["mine:never_finite"], "the loss is not finite"),
        ([*LARGE, "--draws", "-1"], "draws must be at least 0"),
        ([*LARGE, "--layers", "0"], "layers must be at least 1"),
        (["mine:make_run", "--step-seconds", "-1"], "step_seconds must be at least 1e-30"),
    ],
)
def test_bad_input_is_one_sentence(arguments, words):
    result = plan(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    assert line.startswith("csgmcmc: ")
    assert words in line


def test_errors_of_the_script_have_a_traceback():
    result = plan("mine:wrong")
    assert isinstance(result.exception, ValueError)
    assert "the script's own trouble" in str(result.exception)


def test_the_processes_of_the_test_are_no_more_than_the_cores(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "csgmcmc.cli.plan.measure_wire", lambda count, _: asked.append(count) or WIRE
    )

    def with_three_cores(*args, **options):
        sizes, machine = measure_task(*args, seconds=0.01, **options)
        return sizes, replace(machine, cores=3)

    monkeypatch.setattr("csgmcmc.cli.plan.measure_task", with_three_cores)
    shown("mine:make_run", "--replicas", "8", "--split-batch")
    assert asked == [3]


def test_a_model_that_is_called_in_another_way_is_planned_without_predictions():
    text = shown("mine:called_otherwise")
    assert "prediction" not in text
    assert row(text, "a step")


def test_a_folder_that_is_not_there_yet_has_the_space_of_the_one_above(folder, monkeypatch):
    asked = []

    def usage(path):
        asked.append(path)
        return shutil.disk_usage("/")

    monkeypatch.setattr("csgmcmc.cli.plan.shutil", SimpleNamespace(disk_usage=usage))
    shown("mine:make_run", "--out", folder / "not" / "there")
    assert asked == [folder]
