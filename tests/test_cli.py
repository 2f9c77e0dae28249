import re
import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import csgmcmc
from csgmcmc import DrawStore
from csgmcmc.cli import app
from tests.loop.support import make_chain


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


WITHOUT_MATPLOTLIB = """
import sys
sys.modules["matplotlib"] = None
from csgmcmc.cli import app
for words in ("--help", "report .", "report STORE"):
    try:
        app(words.split())
    except SystemExit as end:
        print(words, "ends with", end.code)
"""


def test_report_without_matplotlib(tmp_path, store):
    command = [sys.executable, "-c", WITHOUT_MATPLOTLIB.replace("STORE", str(store))]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    ends = [line for line in result.stdout.splitlines() if "ends with" in line]
    codes = {"--help": 0, "report .": 2, f"report {store}": 2}
    assert ends == [f"{words} ends with {code}" for words, code in codes.items()]
    no_store, no_matplotlib = result.stderr.splitlines()
    assert "is not a draw store" in no_store
    assert no_matplotlib == "csgmcmc: matplotlib is missing: pip install 'csgmcmc[plot]'"
    assert not list(tmp_path.iterdir())


def test_version_and_help():
    assert run("--version").output.strip() == csgmcmc.__version__
    assert "inspect" in run("--help").output
    assert "Usage" in run().output


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "store"
    make_chain(path).run()
    return path


def test_inspect_prints_what_a_store_holds(store):
    result = run("inspect", str(store))
    assert result.exit_code == 0, result.output
    for words in (
        "12 draws, 3 cycles, 1 chain, ",
        "chain 0: 12 of 12 draws, steps ",
        "torch 2",
        "schedule: ",
        "all draws are intact",
    ):
        assert words in result.output


def test_inspect_of_a_stopped_run_says_how_far_it_came(tmp_path):
    def stop(moment) -> None:
        if moment.tick.step == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_chain(tmp_path, callbacks=stop).run()
    stopped = run("inspect", str(tmp_path)).output
    assert "chain 0: 4 of 12 draws, stopped at step 49 of 120" in stopped
    shutil.rmtree(tmp_path / "checkpoints")
    inspected = run("inspect", str(tmp_path)).output
    assert re.search(r"4 of 12 draws, steps \d+ to 39 of 120", inspected)
    store = DrawStore(tmp_path)
    store.lock_chain(0)
    assert "4 of 12 draws, is running, steps " in run("inspect", str(tmp_path)).output


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


def test_report_refuses_what_is_no_store(tmp_path):
    result = run("report", str(tmp_path))
    assert result.exit_code == 2
    assert "is not a draw store" in result.output


def test_report_writes_a_page(tmp_path, store):
    page = tmp_path / "page.html"
    result = run("report", str(store), "--out", str(page))
    assert result.exit_code == 0, result.output
    assert f"page: {page}" in result.output
    assert "posterior.report(loader)" in page.read_text()
    assert not (store / "report.html").exists()


def test_markup_in_names_is_printed_as_it_is(tmp_path):
    store = tmp_path / "[bold]x[" / "y]"
    draws = DrawStore(store, provenance={"note": "see [/refs]"})
    make_chain(store, draws=draws).run()
    for command, words in (("inspect", "see [/refs]"), ("report", "[bold]x[")):
        result = run(command, str(store))
        assert result.exit_code == 0, (result.output, result.exception)
        assert words in result.output
