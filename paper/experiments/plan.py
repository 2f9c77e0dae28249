"""What the experiments on networks would take: `python -m paper run all --dry-run`.

Chains that several experiments share are counted once. The time of a step is measured, with as
many steps of each network as fit into its share of a minute, on random images of the right size.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from paper.data import SIZES
from paper.devices import device
from paper.experiments.base import Experiment
from paper.experiments.deep_base import DeepConfig, DeepExperiment
from paper.experiments.imagenet import Imagenet
from paper.experiments.methods import Network, Run

SECONDS = 15.0  # of each network
CLASSES = {"mnist": 10, "cifar10": 10, "cifar100": 100, "imagenet": 1000}


@dataclass(frozen=True)
class Work:
    """A chain: what is trained, on how many images of what shape, and the run."""

    source: str
    network: Network
    images: int
    shape: tuple[int, ...]
    run: Run

    @property
    def steps(self) -> float:
        """Minibatches of all epochs."""
        return self.run.epochs * (self.images // self.network.batch)


@dataclass(frozen=True)
class Estimate:
    """Chains, epochs and hours of one experiment, without those of experiments before it."""

    name: str
    chains: int
    epochs: float
    hours: float


def estimate(
    experiments: Mapping[str, Experiment], preset: str, seconds: float = SECONDS
) -> list[Estimate]:
    """What is still to do in each experiment, in order; those without networks are left out."""
    known: set[Work] = set()
    times: dict[tuple[str, str], float] = {}
    found = []
    for name, experiment in experiments.items():
        own = set(_works(experiment, preset)) - known
        known |= own
        for work in own:
            key = work.source, repr(work.network)
            if key not in times:
                times[key] = step_time(work, seconds)
        if own:
            hours = sum(w.steps * times[w.source, repr(w.network)] for w in own) / 3600
            found.append(Estimate(name, len(own), sum(w.run.epochs for w in own), hours))
    return found


def _works(experiment: Experiment, preset: str) -> Iterator[Work]:
    config = experiment.presets[preset]
    if isinstance(experiment, Imagenet):
        shape = (3, config.size, config.size)
        for job in experiment.jobs(config, {}).values():
            run = config.run(job["method"], job["seed"])
            yield Work("imagenet", config.network, SIZES["imagenet"][0], shape, run)
    elif isinstance(experiment, DeepExperiment):
        for job in _all_jobs(experiment, config):
            setting, runs = job["setting"], job.get("runs", [job["run"]] if "run" in job else [])
            images = setting.train or SIZES[setting.source][0]
            shape = (1, 28, 28) if setting.source == "mnist" else (3, 32, 32)
            for run in runs:
                yield Work(setting.source, setting.network, images, shape, run)


def _all_jobs(experiment: DeepExperiment[Any], config: DeepConfig) -> Iterator[Mapping[str, Any]]:
    """All jobs, as if those before were done; only without a search are they known beforehand."""
    done: dict[str, Any] = {}
    while missing := {
        key: job for key, job in experiment.jobs(config, done).items() if key not in done
    }:
        if any(job["part"] == "search" for job in missing.values()):
            raise ValueError(
                f"{experiment.name} searches for step sizes: what it takes is not known before"
            )
        yield from missing.values()
        done |= {key: {} for key in missing}


def step_time(work: Work, seconds: float) -> float:
    """Seconds of a step: the mean of as many as fit into the time, after one that is not timed."""
    classes = CLASSES[work.source]
    model = work.network.make(classes)
    sampler = work.network.sampler(work.run, model, work.images)
    where, generator = device(), torch.Generator().manual_seed(0)
    inputs = torch.randn(work.network.batch, *work.shape, generator=generator).to(where)
    labels = torch.randint(classes, (work.network.batch,), generator=generator).to(where)
    began, count = time.perf_counter(), 0
    while True:
        sampler.zero_grad()
        loss = cross_entropy(model(inputs), labels)
        loss.backward()
        sampler.step()
        loss.item()  # which waits for the device
        if count == 0:
            began = time.perf_counter()
        elif time.perf_counter() - began > seconds:
            return (time.perf_counter() - began) / count
        count += 1
