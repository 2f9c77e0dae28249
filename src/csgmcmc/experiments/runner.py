"""Runs the jobs of an experiment, and writes what they give as they give it."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from csgmcmc.experiments.base import Config, Experiment, Record

PACKAGES = ("csgmcmc", "torch", "numpy", "scipy", "scikit-learn", "arviz-stats")


@dataclass
class Results:
    """The records of a run, and all that is needed to repeat it: one JSON file."""

    experiment: str
    preset: str
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    machine: str
    seconds: float = 0.0
    finished: bool = False
    records: dict[str, Record] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file as a whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".json.tmp")
        # NaN is not JSON: a job says None where it has no number.
        fresh.write_text(json.dumps(asdict(self), indent=1, allow_nan=False) + "\n")
        fresh.replace(path)

    @classmethod
    def load(cls, path: Path) -> "Results":
        try:
            return cls(**json.loads(path.read_text()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} does not hold results of csgmcmc reproduce") from error


def reproduce(
    experiment: Experiment,
    preset: str,
    out: Path,
    *,
    seeds: int | None = None,
    data: Path | None = None,
    workers: int = 1,
    on_job: Callable[[str, int, int], None] | None = None,
) -> Results:
    """Run what is missing of an experiment; its results are in `out`/NAME.json as they come.

    Args:
        experiment: which one.
        preset: settings, by their name in `experiment.presets`.
        out: folder of the results. A run that was stopped goes on where it was.
        seeds: how many, in place of the preset's.
        data: folder of the data sets, for experiments that need one.
        workers: processes, each with one thread; 1 runs all jobs here.
        on_job: called with the key of each job that is done, how many are, and of how many.
    """
    if preset not in experiment.presets:
        names = ", ".join(experiment.presets)
        raise ValueError(f"{experiment.name} has no preset {preset!r}: choose one of {names}")
    config = experiment.presets[preset]
    if seeds is not None:
        config = type(config)(**{**vars(config), "seeds": seeds})
    path = out / f"{experiment.name}.json"
    results = _begin(experiment, preset, config, path)
    while True:
        jobs = experiment.jobs(config, results.records)
        missing = {key: jobs[key] for key in jobs if key not in results.records}
        if not missing:
            break
        for key, record in _run_all(experiment, config, data, missing, workers):
            results.records[key] = record
            results.seconds += record["seconds"]
            results.save(path)
            if on_job:
                on_job(key, len(results.records), len(jobs))
    results.finished = True
    results.save(path)
    return results


def _begin(experiment: Experiment, preset: str, config: Config, path: Path) -> Results:
    fresh = Results(
        experiment.name,
        preset,
        config=json.loads(json.dumps(asdict(config))),  # tuples are lists, as in the file
        versions={name: version(name) for name in PACKAGES},
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    )
    if not path.exists():
        return fresh
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
    return found


def _run_all(
    experiment: Experiment,
    config: Config,
    data: Path | None,
    jobs: Mapping[str, Mapping[str, Any]],
    workers: int,
) -> Iterator[tuple[str, Record]]:
    if workers == 1:
        for key, options in jobs.items():
            yield key, _run(experiment, config, data, options)
        return
    # Threads that wait spin: two processes of one thread each do more than one of two.
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    )
    with pool:
        futures: dict[Future[Record], str] = {
            pool.submit(_run, experiment, config, data, options): key
            for key, options in jobs.items()
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(
    experiment: Experiment, config: Config, data: Path | None, options: Mapping[str, Any]
) -> Record:
    began = time.perf_counter()
    record = experiment.run(config, data, **options)
    return {**record, "seconds": round(time.perf_counter() - began, 2)}
