"""Networks x cycles on CIFAR-10: four cycles of one network, two of two, or one of four networks.

    python -m benchmarks.networks_and_cycles run --data DATA [--seeds 2]
    python -m benchmarks.networks_and_cycles show
    python -m benchmarks.networks_and_cycles figure

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
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.choose_split import SuggestedSplit, choose_split
from csgmcmc import SGHMC, Chain, Cyclical, Posterior
from csgmcmc.checks.calibration import fit_temperature, scaled_scores
from csgmcmc.diagnostics import accuracy, negative_log_likelihood
from csgmcmc.pages import STYLE
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


TRIAL = "choose_split"


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
    held_out, test = PlainBatches(validation, standard), PlainBatches(data.test, standard)
    return Parts(train, held_out, test, standard)


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


def records(path: Path) -> list[dict[str, Any]]:
    """What has been found so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def keep(path: Path, record: dict[str, Any]) -> None:
    """Append a record."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    print(record)


def share_of(parts: Parts, setting: Setting, seed: int, share: float) -> TrainingBatches:
    """A loader of a share of the training images, in batches smaller by the same factor."""
    part, size = parts.train.part(0, round(share * len(parts.train))), round(share * BATCH)
    return TrainingBatches(part, parts.standard, size, seed, augment=setting.augment)


def try_split(parts: Parts, setting: Setting, seed: int) -> dict[str, Any]:
    """What `choose_split` suggests."""
    steps = setting.epochs * (setting.images // BATCH)
    found = choose_split(
        *(make_model, cross_entropy, partial(share_of, parts, setting, seed), parts.validation),
        partial(make_sampler, seed=seed),
        Cyclical(steps, CYCLES, exploration=0.8, draws_per_cycle=1),
        seed=seed,
        initialise=initialise,
    )
    return described(found)


def described(found: SuggestedSplit) -> dict[str, Any]:
    """A suggestion as plain values."""
    every = found.schedule.restart_every if found.schedule.restarts else CYCLES
    numbers = {name: getattr(found, name) for name in ("continued", "restarted", "error")}
    plain = {name: round(value, 4) for name, value in numbers.items()}
    return {**plain, "suggested": list(SPLITS)[[CYCLES, 2, 1].index(every)]}


def run_all(folder: Path, seeds: int) -> None:
    """All runs of CIFAR-10 that have no record yet."""
    data = cifar("cifar10", folder)
    for seed, (name, setting) in product(range(seeds), SETTINGS.items()):
        parts = parts_of(data, setting, seed)
        for split, options in {**SPLITS, TRIAL: {}}.items():
            key = {"setting": name, "split": split, "seed": seed}
            if any(key.items() <= record.items() for record in records(RECORDS)):
                continue
            begin = time.process_time()
            if split == TRIAL:
                found = try_split(parts, setting, seed)
            else:
                found = scores(run(parts, setting, options, seed), parts)
            keep(RECORDS, {**key, **found, "seconds": round(time.process_time() - begin, 1)})


def table() -> list[str]:
    """Means over the seeds, and what the trials suggested, as lines of Markdown."""
    measures = ("error %", "NLL", "scaled NLL")
    lines = [f"| setting | networks x cycles | {' | '.join(measures)} | runs |", "|---" * 6 + "|"]
    for name, split in product(SETTINGS, SPLITS):
        wanted = {"setting": name, "split": split}.items()
        own = [one for one in records(RECORDS) if wanted <= one.items()]
        if own:
            means = [np.mean([one[measure][-1] for one in own]) for measure in measures]
            row = f"{means[0]:.1f} | {means[1]:.3f} | {means[2]:.3f} | {len(own)}"
            lines.append(f"| {name} | {split} | {row} |")
    lines += [
        "",
        "| setting | continued | restarted | standard error | suggested |",
        "|---" * 5 + "|",
    ]
    for one in records(RECORDS):
        if one["split"] == TRIAL:
            row = " | ".join(f"{one[part]:.3f}" for part in ("continued", "restarted", "error"))
            lines.append(f"| {one['setting']} | {row} | {one['suggested']} |")
    return lines


def figure() -> None:
    """One picture for each setting: the scaled NLL of the average after each cycle."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    with mpl.rc_context(STYLE):
        picture, axes = plt.subplots(1, len(SETTINGS), figsize=(9, 3.4), layout="constrained")
        for axis, name in zip(axes, SETTINGS, strict=True):
            for number, split in enumerate(SPLITS):
                wanted = {"setting": name, "split": split}.items()
                own = [one["scaled NLL"] for one in records(RECORDS) if wanted <= one.items()]
                if own:
                    means, cycles = np.mean(own, axis=0), range(1, CYCLES + 1)
                    axis.plot(cycles, means, marker="o", label=split, color=f"C{number}")
            axis.set(title=name, xlabel="cycles so far", xticks=range(1, CYCLES + 1))
        axes[0].set_ylabel("test NLL of the average, scaled")
        axes[0].legend()
        picture.savefig(IMAGE, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["run", "show", "figure"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "run":
        run_all(given.data, given.seeds)
    elif given.what == "show":
        print("\n".join(table()))
    else:
        figure()
