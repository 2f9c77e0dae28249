"""Networks x cycles on CIFAR-10: four cycles of one network, two of two, or one of four networks.

    python benchmarks/networks_and_cycles.py run --data DATA [--seeds 2]
    python benchmarks/networks_and_cycles.py show
    python benchmarks/networks_and_cycles.py figure

Two settings of one budget: 2,500 images as they are for 40 epochs, and 5,000 images with crops and
flips for 20. A ResNet-8 of width 16 (stem stride 2) is sampled by SGHMC with one lr, weight decay
and temperature for all. One draw is kept at the end of each cycle, and the average is scored after
each cycle. 1,000 other images are for validation: the temperature that scales the average, as in
Guo et al. (2017), is fitted on these. The 5,000 test images decide nothing.

DATA is a folder with the archive cifar-10-python.tar.gz, or a part of it. Records are appended to
benchmarks/results, so that a run that was stopped goes on. Seconds are those of the processor, of
one thread.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from csgmcmc import SGHMC, Chain, Cyclical, Posterior
from csgmcmc.checks.calibration import fit_temperature, scaled_scores
from csgmcmc.diagnostics import accuracy, negative_log_likelihood
from paper.data import cifar
from paper.data.augmentation import PlainBatches, Standard, TrainingBatches
from paper.data.cifar import Cifar, Images
from paper.networks import resnet8

RECORDS = Path(__file__).parent / "results" / "networks-and-cycles.jsonl"
IMAGE = Path(__file__).parents[1] / "docs" / "images" / "networks-and-cycles.png"
BATCH, VALIDATION, CYCLES = 50, 1000, 4
LR, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 5e-4


class Setting(NamedTuple):
    """How many images, whether they are augmented, and for how many epochs."""

    images: int
    augment: bool
    epochs: int


SETTINGS = {
    "2,500 images, 40 epochs": Setting(2500, False, 40),
    "5,000 images with crops and flips, 20 epochs": Setting(5000, True, 20),
}
SPLITS: dict[str, dict[str, Any]] = {
    "1 network x 4 cycles": {},
    "2 networks x 2 cycles": {"restart": "fresh", "restart_every": 2},
    "4 networks x 1 cycle": {"restart": "fresh"},
}


class Parts(NamedTuple):
    """The data of one seed."""

    train: Images
    validation: PlainBatches
    test: PlainBatches
    standard: Standard


def parts_of(data: Cifar, setting: Setting, seed: int) -> Parts:
    """Another choice of training and validation images for each seed."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data.train), generator=generator)
    images = Images(data.train.pixels[rows], data.train.labels[rows])
    train = images.part(0, setting.images)
    validation = images.part(len(rows) - VALIDATION, len(rows))
    standard = Standard(train.pixels)
    both = (PlainBatches(part, standard) for part in (validation, data.test))
    return Parts(train, *both, standard)


def initialise(model: nn.Module) -> None:
    """As the layers of `paper.networks` are made: not by their own `reset_parameters`."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def make_model() -> nn.Module:
    return resnet8(stem_stride=2).to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def make_sampler(params: Any, num_data: float, seed: int = 0) -> SGHMC:
    options: dict[str, Any] = {"momentum": MOMENTUM, "weight_decay": WEIGHT_DECAY, "seed": seed}
    return SGHMC(params, LR, num_data=num_data, temperature=1 / num_data, **options)


def run(parts: Parts, setting: Setting, options: dict[str, Any], seed: int) -> Posterior:
    """A chain; the posterior of its draws."""
    torch.manual_seed(seed)
    loader = TrainingBatches(parts.train, parts.standard, BATCH, seed, augment=setting.augment)
    model, steps = make_model(), setting.epochs * len(loader)
    schedule = Cyclical(steps, CYCLES, exploration=0.8, draws_per_cycle=1, **options)
    sampler = make_sampler(model.parameters(), len(parts.train), seed)
    chain = Chain(
        *(model, cross_entropy, loader, sampler, schedule),
        initialise=initialise,
        progress=False,
    )
    return Posterior(model, chain.run(), progress=False)


def scores(posterior: Posterior, parts: Parts) -> dict[str, list[float]]:
    """Scores of the average over the draws up to the end of each cycle."""
    found: dict[str, list[float]] = {}
    each = [posterior.predict_loader(part, members=True) for part in (parts.validation, parts.test)]
    members = [np.asarray(one.members, dtype=np.float64) for one in each]
    labels = [part.dataset.labels.numpy() for part in (parts.validation, parts.test)]
    for count in range(1, len(posterior.draws) + 1):
        probs = [own[:count].mean(0) for own in members]
        logs = [np.log(own.clip(1e-300)) for own in probs]
        scaling = fit_temperature(logs[0], labels[0], np.arange(len(labels[0]))).value
        scaled = [-scaled_scores(*pair, scaling).mean() for pair in zip(logs, labels, strict=True)]
        row = {
            "error %": 100 - 100 * accuracy(probs[1], labels[1]),
            "NLL": negative_log_likelihood(probs[1], labels[1]),
            "scaled NLL": float(scaled[1]),
            "validation scaled NLL": float(scaled[0]),
            "temperature": scaling,
        }
        for name, value in row.items():
            found.setdefault(name, []).append(round(value, 4))
    return found


def records() -> list[dict[str, Any]]:
    if not RECORDS.exists():
        return []
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def run_all(folder: Path, seeds: int) -> None:
    """All runs that have no record yet."""
    torch.set_num_threads(1)
    data = cifar("cifar10", folder)
    for seed in range(seeds):
        for name, setting in SETTINGS.items():
            parts = parts_of(data, setting, seed)
            for split, options in SPLITS.items():
                key = {"setting": name, "split": split, "seed": seed}
                if any(key.items() <= record.items() for record in records()):
                    continue
                begin = time.process_time()
                posterior = run(parts, setting, options, seed)
                seconds = round(time.process_time() - begin, 1)
                record = {**key, **scores(posterior, parts), "seconds": seconds}
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(record)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["run", "show", "figure"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    if given.what == "run":
        run_all(given.data, given.seeds)
