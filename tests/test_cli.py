import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import matplotlib.image
import pytest
from typer.testing import CliRunner

import csgmcmc
from csgmcmc import DrawStore, demo
from csgmcmc.cli import app
from csgmcmc.files import readable_size
from tests.chain.support import make_chain


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_demo_prints_tables_and_writes_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "MoonsDemo", partial(demo.MoonsDemo, steps=400))
    short = partial(demo.RegressionDemo, steps=300, hmc_chains=2, hmc_paths=2)
    monkeypatch.setattr(demo, "RegressionDemo", short)
    small = ["--steps", "600", "--digits-steps", "200", "--seeds", "2"]
    out = tmp_path / "deep" / "folder"
    result = run("demo", *small, "--out", str(out))
    assert result.exit_code == 0, result.output
    for word in ("cSGLD, cooling", "4 (pooled)", "truth", "0.989"):
        assert word in result.output
    for word in ("regression", "exact (HMC)", "two moons", "certain far away"):
        assert word in result.output
    for word in ("SGDM", "Snapshot", "cSGHMC", "AUROC", "±", "of 2", "Not ahead"):
        assert word in result.output
    for name in ("mixture", "regression", "moons"):
        assert matplotlib.image.imread(out / f"{name}.png").std() > 0.05


def test_one_part_of_the_demo(tmp_path):
    few = ["--digits-steps", "200", "--seeds", "1", "--out", str(tmp_path)]
    result = run("demo", "--part", "digits", *few)
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
        (["--digits-steps", "20"], "too few for draws_per_cycle=25"),
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
for words in ("--help", "demo --help", "demo --steps 10", "demo", "report .", "report STORE"):
    try:
        app(words.split())
    except SystemExit as end:
        print(words, "ends with", end.code)
"""


def test_without_matplotlib_only_pictures_are_missing(tmp_path, store):
    command = [sys.executable, "-c", WITHOUT_MATPLOTLIB.replace("STORE", str(store))]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    ends = [line for line in result.stdout.splitlines() if "ends with" in line]
    codes = {"--help": 0, "demo --help": 0, "demo --steps 10": 2, "demo": 2, "report .": 2}
    codes[f"report {store}"] = 0
    assert ends == [f"{words} ends with {code}" for words, code in codes.items()]
    wrong_steps, demo, report, page = result.stderr.splitlines()
    assert "lower cycles" in wrong_steps
    assert demo == "csgmcmc: matplotlib is missing: pip install 'csgmcmc[plot]'"
    assert "is not the folder of a run" in report
    assert page == "csgmcmc: no page: matplotlib is missing: pip install 'csgmcmc[plot]'"
    assert not list(tmp_path.iterdir())


def test_version_and_help():
    assert run("--version").output.strip() == csgmcmc.__version__
    assert "demo" in run("--help").output
    assert "Usage" in run().output


def heed_interrupts():
    """A shell that starts tests in the background lets them and their children ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_ends_the_demo_quietly(tmp_path):
    program = """
import sys
from pathlib import Path
from csgmcmc.cli import app
from csgmcmc.samplers import SGLD

def step_and_tell(sampler, *arguments):
    step(sampler, *arguments)
    Path("sampling").touch()
    SGLD.step = step

step, SGLD.step = SGLD.step, step_and_tell
app()
"""
    command = [sys.executable, "-c", program, "demo", "--out", "out", "--steps", "10000000"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        preexec_fn=heed_interrupts,
    )
    while not (tmp_path / "sampling").exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=400)
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
        "12 draws, ",
        "kB each",
        "torch 2",
        "schedule: Cyclical(steps=120",
        "all draws are intact",
    ):
        assert words in result.output
    assert "4" in result.output


def test_inspect_of_a_stopped_run_says_how_far_it_came(tmp_path):
    def stop(moment) -> None:
        if moment.tick.step == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_chain(tmp_path, callbacks=stop).run()
    stopped = run("inspect", str(tmp_path)).output
    assert "chain 0: 4 of 12 draws, stopped at step 49 of 120" in stopped
    shutil.rmtree(tmp_path / "checkpoints")
    assert "4 of 12 draws, last draw at step 39 of 120" in run("inspect", str(tmp_path)).output
    store = DrawStore(tmp_path)
    store.lock_chain(0)
    assert "4 of 12 draws, is running, last draw at" in run("inspect", str(tmp_path)).output


def test_sizes_have_the_unit_that_fits():
    sizes = (0, 999, 1_000, 217_000, 1_234_567, 5.5e9, 2e12, 3e17)
    shown = ["0 B", "999 B", "1 kB", "217 kB", "1.23 MB", "5.5 GB", "2 TB", "300 PB"]
    assert [readable_size(size) for size in sizes] == shown


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


def test_a_quick_inspection_does_not_claim_what_it_has_not_read(store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    file = next((copy / "draws").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    result = run("inspect", str(copy), "--quick")
    assert result.exit_code == 0
    assert "intact" not in result.output
    assert "sizes of files only, the draws were not read" in result.output


def test_inspect_of_a_damaged_store_file_is_one_line(store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    for content in (b"[]", b"\xff", b'{"gormat":1}'):
        (copy / "store.json").write_bytes(content)
        result = run("inspect", str(copy))
        assert result.exit_code == 2
        assert "store.json is damaged" in result.output
        assert "Traceback" not in result.output


def test_inspect_refuses_what_is_no_store(tmp_path):
    result = run("inspect", str(tmp_path))
    assert result.exit_code == 2
    assert "is not a draw store" in result.output
    (tmp_path / "store.json").write_text('{"format": 99}')
    assert "upgrade csgmcmc" in run("inspect", str(tmp_path)).output


def test_report_rejects_what_is_no_run(tmp_path):
    result = run("report", str(tmp_path))
    assert result.exit_code == 2
    assert "is not the folder of a run" in result.output


def test_report_of_a_store_alone_is_of_what_there_is(tmp_path, store):
    page = tmp_path / "page.html"
    result = run("report", str(store), "--out", str(page))
    assert result.exit_code == 0, result.output
    assert "no scores" in result.output
    assert "posterior.report(loader) makes a page with them." in page.read_text()
    assert not (store / "report.html").exists()
