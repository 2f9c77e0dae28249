import shutil
import signal
import subprocess
import sys
import time

import matplotlib.image
import pytest
from typer.testing import CliRunner

import csgmcmc
from csgmcmc import cli
from csgmcmc.cli import app
from paper.experiments import Results
from paper.tests.experiments.tiny import Tiny
from tests.chain.support import make_chain


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_demo_prints_a_table_and_writes_a_picture(tmp_path):
    small = ["--steps", "600", "--digits-steps", "200", "--seeds", "2"]
    result = run("demo", *small, "--out", str(tmp_path / "deep" / "folder"))
    assert result.exit_code == 0, result.output
    for word in ("SGLD", "cSGLD", "4 chains pooled", "truth", "0.989"):
        assert word in result.output
    for word in ("SGDM", "Snapshot", "cSGHMC", "AUROC", "±"):
        assert word in result.output
    picture = matplotlib.image.imread(tmp_path / "deep" / "folder" / "mixture.png")
    assert picture.std() > 0.05


def test_one_part_of_the_demo(tmp_path):
    result = run("demo", "--part", "digits", "--digits-steps", "200", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "cSGHMC" in result.output
    assert "25 Gaussians" not in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "10"], "lower cycles"),
        (["--steps", "-3"], "steps must be at least 1, got -3"),
        (["--chains", "0"], "chains must be at least 1, got 0"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--digits-steps", "20"], "too few for draws_per_cycle=10"),
    ],
)
def test_demo_refuses_bad_numbers_in_one_sentence(arguments, words, tmp_path):
    result = run("demo", "--out", str(tmp_path), *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_demo_refuses_a_file_as_folder(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("demo", "--out", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "file" in result.output


WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
from csgmcmc.cli import app
for words in ("demo", "reproduce schedule", "report ."):
    try:
        app(words.split())
    except SystemExit as end:
        print(words, "ends with", end.code)
"""


def test_without_matplotlib_it_says_what_to_install(tmp_path):
    command = [sys.executable, "-c", WITHOUT_MATPLOTLIB]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    ends = ["demo ends with 2", "reproduce schedule ends with 2", "report . ends with 2"]
    assert result.stdout.splitlines() == ends
    said = "csgmcmc: matplotlib is missing: pip install 'csgmcmc[plot]'"
    assert result.stderr.splitlines() == [said] * 3
    assert not list(tmp_path.iterdir())


def test_version_and_help():
    assert run("--version").output.strip() == csgmcmc.__version__
    assert "demo" in run("--help").output
    assert "Usage" in run().output


def heed_interrupts():
    """A shell that starts tests in the background lets them and their children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_ends_the_demo_quietly(tmp_path):
    out = tmp_path / "out"
    program = "from csgmcmc.cli import app; app()"
    command = [sys.executable, "-c", program, "demo", "--out", str(out), "--steps", "10000000"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=heed_interrupts,
    )
    while not out.exists() and process.poll() is None:
        time.sleep(0.1)
    time.sleep(1)  # into the sampling
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in output


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "store"
    make_chain(path).run()
    return path


def test_inspect_prints_what_a_store_holds(store):
    result = run("inspect", str(store))
    assert result.exit_code == 0, result.output
    for words in (
        "12 draws",
        "MB",
        "torch 2",
        "schedule: Cyclical(steps=120",
        "all draws are whole",
    ):
        assert words in result.output
    assert "4" in result.output


def test_inspect_names_what_is_damaged(store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    files = sorted((copy / "draws").iterdir())
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:-1] + b"!")
    result = run("inspect", str(copy))
    assert result.exit_code == 1
    assert f"{files[0].name}: missing" in result.output
    assert f"{files[1].name}: checksum does not match" in result.output
    assert "checksum" not in run("inspect", str(copy), "--quick").output


def test_inspect_refuses_what_is_no_store(tmp_path):
    result = run("inspect", str(tmp_path))
    assert result.exit_code == 2
    assert "is not a draw store" in result.output
    (tmp_path / "store.json").write_text('{"format": 99}')
    assert "upgrade csgmcmc" in run("inspect", str(tmp_path)).output


def test_reproduce_lists_what_there_is():
    result = run("reproduce", "--list")
    assert result.exit_code == 0, result.output
    for words in ("schedule", "Figure 1", "paper, laptop, smoke"):
        assert words in result.output


def test_reproduce_and_report(tmp_path):
    arguments = ["reproduce", "schedule", "--preset", "smoke", "--out", str(tmp_path)]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    for words in ("schedule: 1/1", "Claims", "held", "Both schedules over all steps"):
        assert words in result.output
    assert f"results: {tmp_path / 'schedule.json'}" in result.output
    assert "1/1" not in run(*arguments).output  # nothing is left to do
    made = run("report", str(tmp_path))
    assert made.exit_code == 0, made.output
    for name in ("index.html", "README.md"):
        assert str(tmp_path / name) in made.output
        assert "5 of 5" in (tmp_path / name).read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which experiment? Choose one of"),
        (["shedule"], "there is no experiment 'shedule'. Choose one of"),
        (["schedule", "--preset", "huge"], "no preset 'huge': choose one of paper, laptop, smoke"),
        (["schedule", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["schedule", "--workers", "0"], "workers must be at least 1, got 0"),
        (["schedule", "--data", "nowhere"], "there is no folder nowhere, which --data names"),
        (["schedule", "--config", "no.json"], "there is no file no.json, which --config names"),
    ],
)
def test_reproduce_refuses_bad_arguments_in_one_sentence(arguments, words, tmp_path):
    result = run("reproduce", *arguments, "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert words in result.output
    assert len(result.output.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_reproduce_refuses_a_folder_of_other_settings(tmp_path):
    arguments = ["reproduce", "schedule", "--out", str(tmp_path)]
    assert run(*arguments, "--preset", "smoke").exit_code == 0
    result = run(*arguments, "--preset", "paper")
    assert result.exit_code == 2
    assert "holds a run with other settings (cycles, steps): take another --out" in result.output


def test_reproduce_takes_a_recipe(tmp_path):
    recipe = tmp_path / "recipe.json"
    csgmcmc.Recipe(cycles=10, exploration=0.5, lr=0.07).save(recipe)
    arguments = ["reproduce", "schedule", "--preset", "smoke", "--out", str(tmp_path / "out")]
    result = run(*arguments, "--config", str(recipe))
    assert result.exit_code == 0, result.output
    left = "sampler, temperature, weight_decay, options, epochs, draws_per_cycle, seed"
    assert f"schedule has no settings for {left} of {recipe}" in result.output
    config = Results.load(tmp_path / "out" / "schedule.json").config
    assert (config["cycles"], config["exploration"], config["cyclical_lr"]) == (10, 0.5, 0.07)
    recipe.write_text('{"beta": 0.5}')
    result = run(*arguments, "--config", str(recipe))
    assert result.exit_code == 2
    assert "is a setting of schedule: seeds, steps, cycles" in result.output
    assert len(result.output.splitlines()) == 1


def test_an_interrupted_experiment_says_how_to_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(cli.reproduce, "find_experiments", lambda: {"tiny": Tiny()})
    (tmp_path / "do 3").write_text("interrupt")
    arguments = ["--preset", "paper", "--data", str(tmp_path), "--out", str(tmp_path)]
    result = run("reproduce", "tiny", *arguments, "--workers", "1")
    assert result.exit_code == 130
    assert result.output.splitlines()[2:] == [
        "csgmcmc: stopped; the same command goes on where it was"
    ]
    assert len(Results.load(tmp_path / "tiny.json").records) == 2


def test_report_refuses_what_holds_no_results(tmp_path):
    result = run("report", str(tmp_path / "missing"))
    assert result.exit_code == 2
    assert "there is no folder" in result.output
    result = run("report", str(tmp_path))
    assert result.exit_code == 2
    assert "holds no results" in result.output
