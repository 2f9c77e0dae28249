import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from paper.experiments import Config, Results, find_experiments, reproduce
from paper.tests.experiments.tiny import Tiny, numbers_run

ROOT = Path(__file__).parents[3]
SQUARES = [f"square of {number}" for number in (1, 2, 3, 4)]


def answers(results):
    """The records but for the time that they took."""
    return [
        (key, {name: value for name, value in record.items() if name != "seconds"})
        for key, record in results.records.items()
    ]


def run_here(out, **options):
    return reproduce(Tiny(), "paper", out, **options)


def test_the_file_holds_what_is_returned_and_how_it_was_made(tmp_path):
    results = run_here(tmp_path / "deep" / "folder", seeds=3)
    found = Results.load(tmp_path / "deep" / "folder" / "tiny.json")
    assert found == results
    assert results.finished
    assert results.config == {"seeds": 3, "numbers": [1, 2, 3, 4], "pause": 0.0}
    assert results.versions["torch"].startswith("2.")
    assert "cores" in results.machine
    assert results.command == "python -m paper run tiny --preset paper --seeds 3"
    seconds = [record["seconds"] for record in results.records.values()]
    assert results.seconds == pytest.approx(sum(seconds), abs=0.011)
    assert seconds[0] >= 0.2
    assert sorted(os.listdir(tmp_path / "deep" / "folder")) == ["tiny.json", "tiny.lock"]


def test_all_versions_that_made_records_are_named_and_no_others(tmp_path):
    path = tmp_path / "tiny.json"
    now = run_here(tmp_path).versions["torch"]
    old = Results.load(path)
    replace(old, versions={**old.versions, "torch": "1.0"}, machine="another").save(path)
    before = path.read_text()
    run_here(tmp_path)  # has nothing to do
    assert path.read_text() == before
    del old.records["sum"]
    replace(old, versions={**old.versions, "torch": "1.0"}, machine="another").save(path)
    for _ in range(2):
        found = run_here(tmp_path)
        assert found.versions["torch"] == f"1.0 and {now}"
        assert found.machine == f"another and {old.machine}"


def test_two_runs_do_not_write_one_file(tmp_path):
    def run_another(*_):
        with pytest.raises(ValueError, match=r"another run is writing .*tiny\.json: wait"):
            run_here(tmp_path)

    assert run_here(tmp_path, on_start=run_another).finished


def test_a_folder_of_data_is_told_where_it_means_something_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_here(Path("a"), data=Path("..")).command.endswith("--preset paper --data ..")
    assert run_here(Path("b"), data=tmp_path).command.endswith("--preset paper --data DIR")


def test_later_jobs_see_the_records_of_earlier_ones(tmp_path):
    results = run_here(tmp_path)
    assert list(results.records) == [*SQUARES, "sum"]
    assert results.records["sum"]["total"] == 30


def test_records_are_in_memory_as_in_the_file(tmp_path):
    assert run_here(tmp_path).records["square of 2"]["pair"] == [2, -2]


def test_callbacks_tell_what_begins_and_what_is_done(tmp_path):
    told = []
    run_here(
        tmp_path,
        on_start=lambda *job: told.append(("start", *job)),
        on_job=lambda *job: told.append(("done", *job)),
    )
    assert told[:3] == [
        ("start", SQUARES[0], 0, 4),
        ("done", SQUARES[0], 1, 4),
        ("start", SQUARES[1], 1, 4),
    ]
    assert told[-2:] == [("start", "sum", 4, 5), ("done", "sum", 5, 5)]


@pytest.mark.parametrize(("order", "error"), [("fail", RuntimeError), ("interrupt", BaseException)])
def test_a_stopped_run_goes_on_and_repeats_nothing(order, error, tmp_path):
    (tmp_path / "do 3").write_text(order)
    with pytest.raises(error):
        run_here(tmp_path, data=tmp_path)
    stopped = Results.load(tmp_path / "tiny.json")
    assert list(stopped.records) == SQUARES[:2]
    assert not stopped.finished
    (tmp_path / "do 3").unlink()
    results = run_here(tmp_path, data=tmp_path)
    assert answers(results) == answers(run_here(tmp_path / "whole"))
    assert numbers_run(tmp_path) == [1, 2, 3, 3, 4]  # the third was tried twice
    assert results.seconds >= stopped.seconds


def test_a_finished_run_is_left_as_it_is(tmp_path):
    run_here(tmp_path, data=tmp_path)
    before = (tmp_path / "tiny.json").read_text()
    run_here(tmp_path, data=tmp_path)
    assert (tmp_path / "tiny.json").read_text() == before
    assert numbers_run(tmp_path) == [1, 2, 3, 4]


def test_other_settings_are_refused_by_name(tmp_path):
    run_here(tmp_path)
    before = (tmp_path / "tiny.json").read_text()
    with pytest.raises(ValueError, match=r"tiny.json holds a run with other settings \(seeds\)"):
        run_here(tmp_path, seeds=2)
    with pytest.raises(ValueError, match=r"\(numbers, pause\): take another --out"):
        reproduce(Tiny(), "unlike", tmp_path)
    assert (tmp_path / "tiny.json").read_text() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"some": "thing"}'])
def test_a_file_of_something_else_is_refused(text, tmp_path):
    (tmp_path / "tiny.json").write_text(text)
    with pytest.raises(ValueError, match="does not hold results of python -m paper run"):
        run_here(tmp_path)
    assert (tmp_path / "tiny.json").read_text() == text


def test_the_file_is_whole_whenever_it_is_there(tmp_path, monkeypatch):
    results = run_here(tmp_path)
    before = (tmp_path / "tiny.json").read_text()
    write = Path.write_text

    def fill_the_disk(path, text, **options):
        write(path, text[: len(text) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", fill_the_disk)
    with pytest.raises(OSError, match="no space left"):
        replace(results, seconds=99.0).save(tmp_path / "tiny.json")
    assert (tmp_path / "tiny.json").read_text() == before


@pytest.mark.parametrize("order", ["nan", "object"])
def test_what_is_not_json_is_refused_and_the_rest_kept(order, tmp_path):
    (tmp_path / "do 2").write_text(order)
    with pytest.raises(ValueError, match="the record of 'square of 2' is not JSON"):
        run_here(tmp_path, data=tmp_path)
    assert list(Results.load(tmp_path / "tiny.json").records) == SQUARES[:1]
    assert "NaN" not in (tmp_path / "tiny.json").read_text()


def test_bad_arguments_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="no preset 'huge': choose one of paper, slow, unlike"):
        reproduce(Tiny(), "huge", tmp_path)
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        run_here(tmp_path, seeds=0)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        run_here(tmp_path, workers=0)
    assert not list(tmp_path.iterdir())


def test_two_workers_give_what_one_gives(tmp_path):
    run_here(tmp_path / "two", workers=2)  # the first job is the longest, and mostly not done first
    two = Results.load(tmp_path / "two" / "tiny.json")
    assert answers(two) == answers(run_here(tmp_path / "one"))


def test_a_worker_that_fails_leaves_the_others_records(tmp_path):
    (tmp_path / "do 3").write_text("fail")
    with pytest.raises(RuntimeError, match="asked to fail"):
        run_here(tmp_path, data=tmp_path, workers=2)
    stopped = Results.load(tmp_path / "tiny.json")
    assert stopped.records  # one of the first two, at least, was done before the third began
    assert SQUARES[2] not in stopped.records
    (tmp_path / "do 3").unlink()
    results = run_here(tmp_path, data=tmp_path)
    assert answers(results) == answers(run_here(tmp_path / "whole"))


COMMAND = """
import paper.__main__ as command
from paper.tests.experiments.tiny import Tiny
command.find_experiments = lambda: {"tiny": Tiny()}
command.app()
"""


@pytest.fixture
def command(tmp_path):
    """A run of `python -m paper run` in a session of its own, whose jobs take a minute each."""
    processes = []

    def start():
        arguments = ["run", "tiny", "--preset", "slow", "--out", str(tmp_path)]
        arguments += ["--data", str(tmp_path), "--workers", "2"]
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", COMMAND, *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                # A shell that starts tests in the background lets them and theirs ignore Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        )
        log = tmp_path / "log"
        while not log.exists() or len(numbers_run(tmp_path)) < 2:
            assert processes[-1].poll() is None, processes[-1].communicate()
            time.sleep(0.05)
        return processes[-1]

    yield start
    for process in processes:
        if has_members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def has_members(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_empty(group):
    deadline = time.monotonic() + 100
    while has_members(group) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not has_members(group)


def test_an_interrupt_is_one_sentence_and_leaves_no_process(command):
    process = command()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does it: to all of them
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 130, output
    assert output.strip() == "paper: stopped; the same command continues it"
    assert wait_until_empty(process.pid)


def test_workers_end_with_their_parent(command):
    process = command()
    process.kill()
    process.wait()
    assert wait_until_empty(process.pid)


def test_every_experiment_has_the_presets_that_are_promised():
    experiments = find_experiments()
    assert "schedule" in experiments
    for name, experiment in experiments.items():
        assert name == experiment.name
        assert experiment.summary
        assert {"laptop", "smoke"} <= experiment.presets.keys()
        for config in experiment.presets.values():
            assert isinstance(config, Config)
            assert experiment.jobs(config, {})
