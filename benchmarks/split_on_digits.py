"""What `choose_split` suggests on scikit-learn's digits, beside the best of three splits.

    python -m benchmarks.split_on_digits run [--seeds 2]
    python -m benchmarks.split_on_digits show

100, 300 or 900 digits, as they are, moved by up to a pixel, or with every fifth label random, for
12, 60 or 240 epochs of batches of 32: from budgets of which a cycle trains no network up to those
of which a cycle fits all digits. A
perceptron with two layers of 64 is sampled by SGHMC, in four cycles of one network, two of two, and
one of four. 300 other digits are for validation, 497 for the test. The split that is suggested is
compared with the best of the three on the test digits, and with always the same one: by the NLL
after temperature scaling on the validation digits. Writes records to benchmarks/results, and goes
on where it was stopped.
"""

import argparse
import os
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from benchmarks.choose_split import choose_split
from benchmarks.networks_and_cycles import CYCLES, SPLITS, described, keep, records
from csgmcmc import SGHMC, Chain, Cyclical, Posterior
from csgmcmc.checks.calibration import fit_temperature, scaled_scores
from paper.data import load_digits

RECORDS = Path(__file__).parent / "results" / "split-on-digits.jsonl"
BATCH = 32
digits = cache(load_digits)


class Batches:
    """Shuffled batches of digits; with `shift`, each is moved by up to a pixel."""

    def __init__(self, images: Tensor, labels: Tensor, size: int, shift: bool, seed: int) -> None:
        self.dataset, self.labels = images, labels
        self._size, self._shift = min(size, len(images)), shift
        self.generators = [torch.Generator().manual_seed(seed)]

    def __len__(self) -> int:
        return len(self.dataset) // self._size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        (generator,) = self.generators
        order = torch.randperm(len(self.dataset), generator=generator)
        for rows in order.split(self._size)[: len(self)]:
            images = self.dataset[rows]
            if self._shift:
                windows = pad(images, [1] * 4).unfold(2, 8, 1).unfold(3, 8, 1)
                down, right = torch.randint(3, (2, len(rows)), generator=generator)
                images = windows[torch.arange(len(rows)), :, down, right]
            yield images, self.labels[rows]


def make_model() -> nn.Module:
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def make_sampler(params: Any, num_data: float, seed: int = 0) -> SGHMC:
    options: dict[str, Any] = {"momentum": 0.9, "weight_decay": 1e-3, "seed": seed}
    return SGHMC(params, 0.05, num_data=num_data, temperature=1 / num_data, **options)


def parts_of(images: int, kind: str, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Training, validation and test digits."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(1000, generator=generator)[:images]
    data = digits()
    parts: Any = [data.train[order.tolist()], data.validation.tensors, data.test.tensors]
    if kind == "noisy":
        for number, (pixels, labels) in enumerate(parts):
            random = torch.randint(10, labels.shape, generator=generator)
            is_wrong = torch.rand(labels.shape, generator=generator) < 0.2
            parts[number] = (pixels, torch.where(is_wrong, random, labels))
    return parts


def try_all(images: int, epochs: int, kind: str, seed: int) -> dict[str, Any]:
    """Test NLLs of the three splits, scaled, and what the trial says."""
    (pixels, labels), *parts = parts_of(images, kind, seed)
    shift = kind == "shifted"
    steps = epochs * (images // BATCH)
    schedule = Cyclical(max(steps, 5 * CYCLES), CYCLES, exploration=0.8, draws_per_cycle=1)
    found: dict[str, Any] = {}
    for split, options in SPLITS.items():
        torch.manual_seed(seed)
        model, loader = make_model(), Batches(pixels, labels, BATCH, shift, seed)
        sampler = make_sampler(model.parameters(), images, seed)
        own = Cyclical(schedule.steps, CYCLES, exploration=0.8, draws_per_cycle=1, **options)
        chain = Chain(model, cross_entropy, loader, sampler, own, progress=False, watch=False)
        posterior = Posterior(model, chain.run(), progress=False)
        logs = [posterior.predict(inputs).probs.double().log().numpy() for inputs, _ in parts]
        targets = [truth.numpy() for _, truth in parts]
        scaling = fit_temperature(logs[0], targets[0], np.arange(len(targets[0]))).value
        found[split] = round(-float(scaled_scores(logs[1], targets[1], scaling).mean()), 4)

    def share_of(share: float) -> Batches:
        count, size = max(10, round(share * images)), max(2, round(share * BATCH))
        return Batches(pixels[:count], labels[:count], size, shift, seed)

    trial = choose_split(
        make_model,
        cross_entropy,
        share_of,
        [parts[0]],
        partial(make_sampler, seed=seed),
        schedule,
        seed=seed + 1000,
    )
    return {**found, **described(trial)}


def run_all(seeds: int) -> None:
    """All that has no record yet."""
    for seed, epochs, images, kind in product(
        range(seeds), (12, 60, 240), (100, 300, 900), ("plain", "shifted", "noisy")
    ):
        key = {"images": images, "epochs": epochs, "kind": kind, "seed": seed}
        if not any(key.items() <= record.items() for record in records(RECORDS)):
            keep(RECORDS, {**key, **try_all(**key)})


def table() -> list[str]:
    """How much worse than the best of the three each choice is, as lines of Markdown."""
    lost: dict[str, list[float]] = {}
    for one in records(RECORDS):
        best = min(one[split] for split in SPLITS)
        chosen = {
            **{f"always {split}": split for split in SPLITS},
            "choose_split": one["suggested"],
        }
        for name, split in chosen.items():
            lost.setdefault(name, []).append(one[split] - best)
    lines = ["| choice | mean | largest | settings |", "|---" * 4 + "|"]
    for name, values in lost.items():
        row = f"{np.mean(values):.3f} | {np.max(values):.3f} | {len(values)}"
        lines.append(f"| {name} | {row} |")
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "run":
        run_all(given.seeds)
    else:
        for record in records(RECORDS):
            print(" ".join(f"{name}={value}" for name, value in record.items()))
        print("\n".join(table()))
