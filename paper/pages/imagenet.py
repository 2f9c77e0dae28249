"""The page of ImageNet."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from paper.experiments.imagenet import METHODS
from paper.report.compare import all_lower, shown
from paper.report.page import Claim, Grid, Page, Results

PAPER = {  # NLL, and top-1 and top-5 accuracy in percent
    "SGDM": (0.9595, 76.046, 92.776),
    "Snapshot-SGDM": (0.8941, 77.142, 93.344),
    "SGHMC": (0.9308, 76.274, 92.994),
    "cSGHMC": (0.8882, 77.114, 93.524),
}
SLICE = 1200
"""Training images of the slice of Tiny ImageNet that the preset laptop was run on."""


def page(results: Results) -> Page:
    """Two claims and a table."""
    scores: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for record in results["records"].values():
        scores[record["method"]][record["seed"]] = record["scores"]
    config = results["config"]
    data = _data(results)
    network = config["network"]
    if isinstance(network, str):  # results of csgmcmc 0.1.0
        network = {"kind": network, "batch": config["batch"]}
    claims: list[Claim] = []
    if scores:
        for text, score, others in (
            ("the lowest NLL", "nll", METHODS[:3]),
            ("a lower top-1 error than SGDM and SGHMC", "top1_error", ("SGDM", "SGHMC")),
        ):
            column = 0 if score == "nll" else 1
            claims.append(
                all_lower(
                    f"On {data}, cSGHMC has {text}",
                    ", ".join(
                        f"{method} {_paper(method, column)}" for method in ("cSGHMC", *others)
                    ),
                    scores,
                    score,
                    [("cSGHMC", other) for other in others],
                )
            )
    table = Grid(
        title="Validation data",
        header=[
            *("method", "draws", "NLL in the paper", "NLL"),
            *("top-1 error in the paper, %", "top-1 error, %"),
            *("top-5 error in the paper, %", "top-5 error, %"),
        ],
        rows=[
            [
                method,
                str(next(iter(scores[method].values()))["draws"]),
                *(
                    cell
                    for column, score in enumerate(("nll", "top1_error", "top5_error"))
                    for cell in (_paper(method, column), shown(scores, method, score))
                ),
            ]
            for method in METHODS
            if method in scores
        ],
        note="The paper gives accuracies, on ImageNet: errors are 100 less them. An NLL of "
        f"{np.log(20):.2f} is that of guessing among 20 classes."
        if data != "ImageNet"
        else "The paper gives accuracies: errors are 100 less them.",
    )
    return Page(
        title=f"{data.partition(' (')[0]}: four methods",
        summary=f"Cyclical sampling beside three other methods on {data}.",
        claims=claims,
        parts=[
            f"Network {network['kind']}, images of {config['size']} pixels, {config['epochs']} "
            f"epochs for every method, {config['cycles']} cycles, batch {network['batch']}. "
            "The paper states the network, the epochs, the cycles and the draws of a "
            "cycle. It gives no step size, β, weight decay, batch or schedule for ImageNet: those "
            "of CIFAR are used, and temperature 1/N.",
            *_gate(results),
            table,
        ],
    )


def _data(results: Results) -> str:
    """What was trained on: without the preset of the paper, it is not ImageNet."""
    sizes = {record["train"] for record in results["records"].values() if "train" in record}
    if results.get("preset") == "paper" or not sizes:
        return "ImageNet"
    pixels = results["config"]["size"]
    if sizes == {SLICE}:
        return f"20 classes of Tiny ImageNet ({SLICE // 20} images each, {pixels} pixels)"
    images = " or ".join(f"{size:,}" for size in sorted(sizes))
    return f"a folder of images ({images} of {pixels} pixels)"


def _gate(results: Results) -> list[str]:
    """The training error at the end of each cycle, where the records have it."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    sizes: set[str] = set()
    for record in results["records"].values():
        if "train_errors" in record:
            found[record["method"]].append(record["train_errors"])
            sizes.add(f"{record['train']:,} training and {record['scores']['tested']:,} validation")
    if not found:
        return []
    errors = "; ".join(
        f"{method} {', '.join(f'{100 * mean:.2f}' for mean in np.mean(one, axis=0))}"
        for method, one in found.items()
    )
    return [
        f"{' or '.join(sorted(sizes))} images. The gate, the training error at the end of each "
        f"cycle in percent, mean over seeds: {errors}."
    ]


def _paper(method: str, column: int) -> str:
    value = PAPER[method][column]
    return f"{value:.4f}" if column == 0 else f"{100 - value:.2f}"
