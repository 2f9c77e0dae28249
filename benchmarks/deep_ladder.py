"""A ladder of weight decays on a deep network, beside one weight decay chosen with as many runs.

    python benchmarks/deep_ladder.py --data DATA [--seeds 2]

CIFAR-10, 2,500 images to learn from, ResNet-8 of width 16, no augmentation: four cycles of eleven
epochs. cSGHMC and Snapshot run once with each of four weight decays, and the one with the lowest
NLL on 2,500 validation images is scored on the test images. The ladder gives each cycle one of the
four, from strong to weak, in a single run; stacking on the validation images weighs its cycles, as
it does for the chosen runs of the others. Results are appended to runs/bench/deep-ladder.jsonl as
they are found, so that a run that was stopped goes on.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import SGHMC, Chain, Cyclical, Posterior
from csgmcmc.diagnostics import accuracy, calibration_error, negative_log_likelihood
from paper.data import Images, cifar
from paper.networks import resnet8

ROWS, BATCH, EPOCHS, CYCLES = 2500, 64, 44, 4
LR, TEMPERATURE = 0.1, 1e-3
WEIGHT_DECAYS = (1e-2, 3e-3, 1e-3, 3e-4)
OUT = Path("runs/bench/deep-ladder.jsonl")
METHODS = ("ladder", "cSGHMC", "Snapshot")

Data = dict[str, TensorDataset]


def load(folder: Path) -> Data:
    """Images to learn from, for validation and for the test, standardised by the first."""
    found = cifar("cifar10", folder)
    pixels, labels = found.train.pixels.float() / 255, found.train.labels
    mean = pixels[:ROWS].mean((0, 2, 3), keepdim=True)
    std = pixels[:ROWS].std((0, 2, 3), keepdim=True)

    def part(images: Tensor, classes: Tensor) -> TensorDataset:
        shaped = ((images - mean) / std).to(memory_format=torch.channels_last)
        return TensorDataset(shaped, classes.long())

    test: Images = found.test
    return {
        "train": part(pixels[:ROWS], labels[:ROWS]),
        "validation": part(pixels[ROWS : 2 * ROWS], labels[ROWS : 2 * ROWS]),
        "test": part(test.pixels.float() / 255, test.labels),
    }


def sample(data: Data, method: str, weight_decays: Sequence[float], seed: int) -> Posterior:
    """One run, with a weight decay for each cycle."""
    torch.manual_seed(seed)
    model: Any = resnet8()
    model = model.to(memory_format=torch.channels_last)
    sampler = SGHMC(
        model.parameters(),
        LR,
        momentum=0.9,
        num_data=ROWS,
        temperature=0.0 if method == "Snapshot" else TEMPERATURE,
        weight_decay=weight_decays[0],
        seed=seed,
    )
    order = torch.Generator().manual_seed(seed)
    loader = DataLoader(data["train"], BATCH, shuffle=True, drop_last=True, generator=order)
    schedule = Cyclical(
        EPOCHS * len(loader),
        CYCLES,
        exploration=0.8,
        draws_per_cycle=1 if method == "Snapshot" else 3,
        weight_decay_scales=[each / weight_decays[0] for each in weight_decays],
    )
    quiet: Any = {"progress": False, "watch": False}
    draws = Chain(model, cross_entropy, loader, sampler, schedule, **quiet).run()
    return Posterior(model, draws, progress=False)


def scores(posterior: Posterior, data: TensorDataset) -> dict[str, float]:
    found: Any = posterior.predict_loader(DataLoader(data, 500))
    probs, labels = found.probs_numpy(), found.labels_numpy()
    return {
        "nll": negative_log_likelihood(probs, labels),
        "error": 1 - accuracy(probs, labels),
        "ece": calibration_error(probs, labels),
    }


def run(data: Data, method: str, weight_decays: Sequence[float], seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    posterior = sample(data, method, weight_decays, seed)
    validation = DataLoader(data["validation"], 500)
    stacked = posterior.weigh("stacking", validation)
    train: Any = posterior.with_draws([posterior.draws[-1]]).predict_loader(
        DataLoader(data["train"], 500)
    )
    weights = [float(stacked.weights[stacked.cycles == one].sum()) for one in range(CYCLES)]
    return {
        "method": method,
        "weight_decays": list(weight_decays),
        "seed": seed,
        "seconds": time.perf_counter() - start,
        "training_error": 1 - accuracy(train.probs_numpy(), train.labels_numpy()),
        "cycle_weights": weights,
        "validation": scores(posterior, data["validation"]),
        "validation, stacked": scores(stacked, data["validation"]),
        "test": scores(posterior, data["test"]),
        "test, stacked": scores(stacked, data["test"]),
    }


def wanted(seeds: int) -> list[tuple[str, tuple[float, ...], int]]:
    """All runs: of the ladder one a seed, of the others one for each weight decay."""
    runs = []
    for seed in range(seeds):
        runs.append(("ladder", WEIGHT_DECAYS, seed))
        runs += [
            (method, (decay,) * CYCLES, seed) for method in METHODS[1:] for decay in WEIGHT_DECAYS
        ]
    return runs


def table(records: list[dict[str, Any]]) -> list[str]:
    """Test scores, mean over seeds, of the runs that validation data choose."""
    lines = [
        "| method | runs | weight decay | test NLL | error % | ECE | NLL, cycles stacked |",
        "|---|---|---|---|---|---|---|",
    ]
    seeds = sorted({record["seed"] for record in records})
    for method in METHODS:
        chosen = []
        for seed in seeds:
            own = [one for one in records if (one["method"], one["seed"]) == (method, seed)]
            chosen.append(min(own, key=lambda one: one["validation"]["nll"]))
        decays = {f"{one['weight_decays'][0]:g}" for one in chosen}
        shown = "all four" if method == "ladder" else ", ".join(sorted(decays))
        means = {
            name: np.mean([one["test"][name] for one in chosen]) for name in ("nll", "error", "ece")
        }
        stacked = np.mean([one["test, stacked"]["nll"] for one in chosen])
        count = 1 if method == "ladder" else len(WEIGHT_DECAYS)
        lines.append(
            f"| {method} | {count} | {shown} | {means['nll']:.3f} | {100 * means['error']:.1f} | "
            f"{means['ece']:.3f} | {stacked:.3f} |"
        )
    return [*lines, "", f"Means of {len(seeds)} seeds."]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, required=True, help="folder with CIFAR-10")
    arguments.add_argument("--seeds", type=int, default=2)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    data = load(options.data)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    records = [json.loads(line) for line in OUT.read_text().splitlines()] if OUT.exists() else []
    known = {(one["method"], tuple(one["weight_decays"]), one["seed"]) for one in records}
    for method, decays, seed in wanted(options.seeds):
        if (method, decays, seed) not in known:
            records.append(run(data, method, decays, seed))
            with OUT.open("a") as file:
                file.write(json.dumps(records[-1]) + "\n")
            Console().print(json.dumps(records[-1]), highlight=False, soft_wrap=True)
    Console().print("\n".join(table(records)), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
