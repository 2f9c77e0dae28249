import signal
import subprocess
import sys
import time

import matplotlib.image
import pytest
from typer.testing import CliRunner

import csgmcmc
from csgmcmc.cli import app


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_demo_prints_a_table_and_writes_a_picture(tmp_path):
    result = run("demo", "--steps", "600", "--out", str(tmp_path / "deep" / "folder"))
    assert result.exit_code == 0, result.output
    for word in ("SGLD", "cSGLD", "4 chains pooled", "truth", "0.989"):
        assert word in result.output
    picture = matplotlib.image.imread(tmp_path / "deep" / "folder" / "mixture.png")
    assert picture.std() > 0.05


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "10"], "lower cycles"),
        (["--steps", "-3"], "steps must be at least 1, got -3"),
        (["--chains", "0"], "chains must be at least 1, got 0"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
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


def test_demo_without_matplotlib_says_what_to_install(tmp_path):
    program = "import sys; sys.modules['matplotlib'] = None; from csgmcmc.cli import app; app()"
    command = [sys.executable, "-c", program, "demo", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "pip install 'csgmcmc[plot]'" in result.stderr
    assert "Traceback" not in result.stderr


def test_version_and_help():
    assert run("--version").output.strip() == csgmcmc.__version__
    assert "demo" in run("--help").output
    assert "Usage" in run().output


def test_interrupt_ends_the_demo_quietly(tmp_path):
    out = tmp_path / "out"
    program = "from csgmcmc.cli import app; app()"
    command = [sys.executable, "-c", program, "demo", "--out", str(out), "--steps", "10000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while not out.exists() and process.poll() is None:
        time.sleep(0.1)
    time.sleep(1)  # into the sampling
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in output
