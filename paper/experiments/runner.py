"""Runs the jobs of an experiment, and writes what they give as they give it."""

import json
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from importlib.metadata import version
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from csgmcmc.errors import DivergedError
from paper.arguments import check_count
from paper.devices import find, on
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.changes import change, read_values
from paper.experiments.results import COMMAND, Results

PACKAGES = ("csgmcmc", "torch", "numpy", "scipy", "scikit-learn", "arviz-stats")

Jobs = Mapping[str, Mapping[str, Any]]
OnJob = Callable[[str, int, int], None]
"""Called with a job's key, how many jobs are done, and of how many."""


def reproduce(
    experiment: Experiment,
    preset: str,
    out: Path,
    *,
    seeds: int | None = None,
    data: Path | None = None,
    workers: int = 1,
    changes: Path | None = None,
    device: str | None = None,
    on_start: OnJob | None = None,
    on_job: OnJob | None = None,
) -> Results:
    """Run what is missing of an experiment; its results are in `out`/NAME.json as they come.

    Args:
        experiment: which one.
        preset: settings, by their name in `experiment.presets`.
        out: folder of the results. A run that was stopped is continued.
        seeds: how many, in place of the preset's.
        data: folder of the data sets, for experiments that need one.
        workers: processes, each with one thread; 1 runs all jobs here.
        changes: a JSON file whose values replace settings of the preset.
        device: where to run; the CPU by default.
        on_start: called when a job begins, with its key, how many are done, and of how many.
        on_job: called the same way when a job is done.
    """
    check_count("workers", workers, at_least=1)
    if device is not None:
        find(device)
    if preset not in experiment.presets:
        names = ", ".join(experiment.presets)
        raise ValueError(f"{experiment.name} has no preset {preset!r}: choose one of {names}")
    config = experiment.presets[preset]
    if changes is not None:
        config, unused = change(config, values := read_values(changes))
        if len(unused) == len(values):
            names = ", ".join(asdict(config))
            raise ValueError(f"nothing in {changes} is a setting of {experiment.name}: {names}")
    if seeds is not None:
        config = replace(config, seeds=seeds)
    if preset == "paper":
        experiment.check_data(config, data)
    path = out / f"{experiment.name}.json"
    fresh = Results(
        experiment.name,
        preset,
        config=json.loads(json.dumps(asdict(config))),  # tuples are lists, as in the file
        versions={name: version(name) for name in PACKAGES},
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        command=_command(experiment, preset, seeds, data, changes, device),
    )
    # Under torchrun every process does every job, each a part of it, and one of them writes. All
    # have read the file before the first job ends, as it needs them all.
    writes = os.environ.get("RANK", "0") == "0"
    with _alone(path) if writes else nullcontext():
        results = _go_on(path, fresh) if path.exists() else fresh
        records = results.records
        while True:
            jobs = experiment.jobs(config, records)
            further = {"draws": out / "draws"} if experiment.keeps_draws else {}
            missing = {key: {**jobs[key], **further} for key in jobs if key not in records}
            if not missing:
                break
            results.versions = {
                name: _joined(results.versions.get(name, number), number)
                for name, number in fresh.versions.items()
            }
            results.machine = _joined(results.machine, fresh.machine)

            def began(key: str, total: int = len(jobs)) -> None:
                if on_start:
                    on_start(key, len(records), total)

            for key, record in _run_all(experiment, config, data, missing, workers, began, device):
                records[key] = record
                results.seconds = round(results.seconds + record["seconds"], 2)
                if writes:
                    results.save(path)
                if on_job:
                    on_job(key, len(records), len(jobs))
        # Workers finish in any order: the file shall not tell.
        results.records = {key: records[key] for key in (*jobs, *records)}
        results.finished = True
        if writes:
            results.save(path)
        return results


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two runs that write one file would each lose what the other has found."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            yield
    except Timeout as error:
        raise ValueError(f"another run is writing {path}: wait, or take another --out") from error


def _go_on(path: Path, fresh: Results) -> Results:
    """What the file holds, if it is of the same settings."""
    found = Results.load(path)
    if found.config != fresh.config:
        differing = sorted(
            name
            for name in {*found.config, *fresh.config}
            if found.config.get(name) != fresh.config.get(name)
        )
        raise ValueError(
            f"{path} holds a run with other settings ({', '.join(differing)}): "
            "take another --out, or delete it"
        )
    # Two presets may be the same settings: the file names the one that was asked for last.
    return replace(found, preset=fresh.preset, command=fresh.command, finished=False)


def _joined(known: str, now: str) -> str:
    """Records of one file may be made with several versions, or on several machines."""
    return known if now in known.split(" and ") else f"{known} and {now}"


def _command(
    experiment: Experiment,
    preset: str,
    seeds: int | None,
    data: Path | None,
    changes: Path | None,
    device: str | None,
) -> str:
    """What to type for the same records; where they are put, and by how many, does not matter."""
    words = [COMMAND + experiment.name, f"--preset {preset}"]
    if seeds is not None:
        words.append(f"--seeds {seeds}")
    if data is not None:  # an absolute path means nothing elsewhere
        words.append(f"--data {'DIR' if data.is_absolute() else data}")
    if changes is not None:
        words.append(f"--config {'FILE' if changes.is_absolute() else changes}")
    if device is not None:
        words.append(f"--device {device}")
    return " ".join(words)


def _run_all(
    experiment: Experiment,
    config: Config,
    data: Path | None,
    jobs: Jobs,
    workers: int,
    on_start: Callable[[str], None],
    device: str | None,
) -> Iterator[tuple[str, Record]]:
    def calls() -> Iterator[tuple[Any, ...]]:
        for key, options in jobs.items():
            on_start(key)
            yield experiment, config, data, key, options, device

    count = min(workers, len(jobs))
    yield from _run_in_processes(calls(), count) if count > 1 else (_run(*one) for one in calls())


def _run_in_processes(calls: Iterator[tuple[Any, ...]], count: int) -> Iterator[tuple[str, Record]]:
    """Results as they come; an error ends all processes, whatever they are doing."""
    running: set[Future[tuple[str, Record]]] = set()
    with ProcessPoolExecutor(count, get_context("spawn"), initializer=_begin_worker) as pool:
        try:
            while True:
                # No more than are worked on at once, so that `on_start` is called in time.
                while len(running) < count and (call := next(calls, None)):
                    running.add(pool.submit(_run, *call))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                # All results are handed on before an error is raised.
                for future in sorted(done, key=lambda future: future.exception() is not None):
                    yield future.result()
        except BaseException:
            for process in active_children():
                process.terminate()
            raise


def _begin_worker() -> None:
    """Use one thread, leave Ctrl-C to the parent, and end when it ends."""
    # Threads that wait spin: two processes of one thread each do more than one of two.
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _run(
    experiment: Experiment,
    config: Config,
    data: Path | None,
    key: str,
    options: Mapping[str, Any],
    device: str | None,
) -> tuple[str, Record]:
    began = time.perf_counter()
    try:
        with on(device):
            record = experiment.run(config, data, **options)
    except DivergedError as error:  # of which only the words would come back from a worker
        raise ValueError(f"{key}: {error}") from error
    seconds = round(time.perf_counter() - began, 2)
    try:  # what others see of a record is what its file holds: lists for tuples, no NaN
        return key, json.loads(json.dumps({**record, "seconds": seconds}, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the record of {key!r} is not JSON: {error}") from error
