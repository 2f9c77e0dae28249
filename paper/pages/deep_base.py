"""What the pages of the experiments on networks share: one skeleton, the gate, and the search."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paper.pages.deep_gate import gate
from paper.report.compare import Scores
from paper.report.page import Claim, Grid, Page, Part, Results, losses_by_lr

NAMES = {
    "mnist": "MNIST",
    "mnist, small steps": "MNIST, small steps",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10, augmented": "CIFAR-10, augmented",
}
REGIMES = {
    "mnist": "MNIST, cycles that converge",
    "cifar-converged": "CIFAR, longer cycles that fail the gate",
    "cifar": "CIFAR, cycles too short to converge",
}
"""Families of experiments, in a chapter's title; the paper's own setting is CIFAR."""

Record = Mapping[str, Any]
Setting = Mapping[str, Any]
Section = Callable[[Setting, Sequence[Record]], tuple[list[Claim], list[Part]]]
"""From a data set's setting and its records to the claims, tables and figures."""


def make_page(
    results: Results,
    title: str,
    summary: str,
    section: Section,
    *,
    note: str = "",
    search: bool = True,
    label: Callable[[Record], str] = lambda record: record["method"],
) -> Page:
    """A section for each setting: it in words, the gate, what `section` makes, and the search.

    `label` tells apart the chains whose training errors are shown.
    """
    claims: list[Claim] = []
    parts: list[Part] = []
    for setting in results["config"]["settings"]:
        name = name_of(setting)
        records = [r for r in results["records"].values() if setting_of(r) == name]
        found, shown = section(setting, records)
        claims += found
        parts += [describe(setting, records), *gate(setting, records, label), *shown]
        if search:
            parts += search_table(name, records, setting.get("search_fit", 1.0))
    return Page(
        f"{_regime(results)}: {title}", summary, claims, [*parts, *([note] if note else [])]
    )


def _regime(results: Results) -> str:
    name = results["experiment"]
    if name.startswith("cifar") and results.get("preset") == "paper":
        return "CIFAR"
    found = [family for family in REGIMES if name == family or name.startswith(f"{family}-")]
    return REGIMES[max(found, key=len)]


def name_of(setting: Setting) -> str:
    """What tells the settings of an experiment apart."""
    return setting.get("label") or setting["source"]


def setting_of(record: Record) -> str:
    """The setting of a record; those made with csgmcmc 0.1.0 name the data only."""
    return record.get("setting", record["source"])


def scores_by(
    records: Sequence[Record], part: str, label: Callable[[Record], str | None]
) -> Scores:
    """Scores by label and seed of the records of a part, without those that diverged."""
    scores: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in records:
        if record["part"] == part and record["scores"] and (name := label(record)) is not None:
            scores[name][record["seed"]] = record["scores"]
    return scores


def add_one_cycle(setting: Setting, records: Sequence[Record], scores: dict[str, Any]) -> None:
    """Add plain networks that were trained for the epochs of one cycle only, by validation NLL.

    Of those of one method, the step size of the lowest mean NLL on validation data is shown.
    """
    length = setting["epochs"] / setting["cycles"]
    for method in ("SGD", "SGDM"):
        found: dict[float, dict[int, Record]] = defaultdict(dict)
        for record in records:
            plain = record["part"] == "chain" and not (record.get("dropout") or record.get("level"))
            if plain and (record["method"], record["epochs"]) == (method, length):
                found[record["lr"]][record["seed"]] = record
        # Networks of an ensemble have seeds of their own.
        found = {
            lr: {seed: one for seed, one in of.items() if seed in scores.get(method, {})}
            for lr, of in found.items()
        }
        kept = {lr: of for lr, of in found.items() if of and all(r["scores"] for r in of.values())}
        if kept:
            best = min(kept, key=lambda lr: _validation_nll([*kept[lr].values()]))
            label = short_label(method, best)
            scores[label] = {seed: one["scores"] for seed, one in kept[best].items()}


def short_label(method: str, lr: float) -> str:
    return f"{method}, one cycle, step size {lr:g}"


def better_length(scores: Scores, records: Sequence[Record], method: str) -> str:
    """The label of plain training for all epochs, or for one cycle's if validation data say so."""
    short = next((label for label in scores if label.startswith(f"{method}, one cycle")), None)
    if short is None:
        return method
    lr, seeds = float(short.rsplit(" ", 1)[1]), scores[short].keys() & scores[method].keys()
    whole = max(record["epochs"] for record in records if record["part"] == "chain")
    losses = []
    for is_short in (False, True):
        found = {
            record["seed"]: record
            for record in records
            if record["part"] == "chain"
            and record["method"] == method
            and record["seed"] in seeds
            and (record["epochs"] < whole) == is_short
            and not (record.get("dropout") or record.get("level"))
            and (not is_short or f"{record['lr']:g}" == f"{lr:g}")
        }
        losses.append(_validation_nll([*found.values()]))
    return short if losses[1] < losses[0] else method


def _validation_nll(chains: Sequence[Record]) -> float:
    """The mean over seeds; infinite where there are no validation data."""
    found = [record["validation"]["nll"] for record in chains if record.get("validation")]
    return float(np.mean(found)) if found else math.inf


def describe_diverged(records: Sequence[Record], label: Callable[[Record], str]) -> str:
    """Which chains lack seeds, in a sentence that begins with a space; empty if none does."""
    lost: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        if record["part"] == "chain":
            lost[label(record)].append(not record["scores"])
    words = [
        f"{name} in {sum(each)} of {len(each)} seeds" for name, each in lost.items() if any(each)
    ]
    if not words:
        return ""
    return (
        f" Diverged, and not in the table: {'; '.join(words)}. The step size was searched for at a "
        "temperature of 1/N; noise needs a smaller one."
    )


def describe(setting: Setting, records: Sequence[Record]) -> str:
    """The settings of a data set in words."""
    network = setting["network"]
    if "sizes" in network:
        kind = f"perceptron {'-'.join(map(str, network['sizes']))}"
        momentum = f"Momentum {network['momentum']:g} where there is any."
    else:
        halved = " with a stem that halves the image" if network.get("stem_stride") == 2 else ""
        kind = f"{network['kind']} of width {network['width']}{halved}"
        momentum = (
            f"Momentum {network['momentum']:g} (the paper's eta = 0.9) in cSGHMC, SGHMC and "
            f"Snapshot-SGDM, {network['sgdm_momentum']:g} in SGDM."
        )
    images = "crops and mirrored images" if setting.get("augment", True) else "no augmentation"
    return (
        f"{NAMES[name_of(setting)]}: {_sizes(setting, records)}, {kind}, batch "
        f"{network['batch']}, weight decay {network['weight_decay']:g}, {setting['epochs']} epochs "
        f"for every method, {setting['cycles']} cycles, exploration {setting['exploration']:g}, "
        f"{images}. {momentum} SGD and SGDM: one cosine to 0. SGLD and SGHMC: along a cosine to a "
        "hundredth of the step size in three quarters of the epochs, without noise; then a tenth "
        f"of the step size times k^-0.5005, k in epochs. {_step_sizes(setting)}"
    )


def _sizes(setting: Setting, records: Sequence[Record]) -> str:
    """How many images there are: records made with csgmcmc 0.1.0 hold the tested ones only."""
    trained = {r["train"]["size"] for r in records if r.get("train")}
    scored = [r["scores"] for r in records if r.get("scores")]
    tested = {one["tested"] for one in scored}
    if not trained and setting.get("train") is None and tested == {5000}:
        trained = {20_000}  # what the archive with 5,000 test images holds
    numbers = [
        " or ".join(f"{size:,}" for size in sorted(sizes)) or "unknown numbers of"
        for sizes in (trained, tested)
    ]
    return f"{numbers[0]} training and {numbers[1]} test images"


def _step_sizes(setting: Setting) -> str:
    if setting["source"] == "mnist" and not setting["searched"]:
        return "Step sizes are a quarter of those that the search chooses."
    if not setting["searched"] and setting.get("validation"):
        return "Step sizes are those that the search on CIFAR-10 without augmentation chooses."
    if not setting["searched"]:
        return "Step sizes are the paper's; those of SGD and SGDM, which it lacks, are 0.1."
    shared = (
        " Snapshot shares that of its cyclical sampler, SGLD that of SGD, SGHMC that of cSGHMC."
        if setting.get("shared_lr")
        else ""
    )
    if setting.get("validation"):
        data = f"the {setting['validation']:,} images after the training data"
    else:
        data = f"{setting['held_out']:,} held-out training images"
    length = "runs as long as the table's"
    if setting["search_epochs"] is not None:
        length = f"runs of {setting['search_epochs']} epochs on the others, as long as a cycle"
    if (fit := setting.get("search_fit", 1.0)) < 1:
        length += f" that leave at most {100 * fit:g} % training error"
    return f"Step sizes: the lowest NLL on {data}, of {length}.{shared}"


def search_table(source: str, records: Sequence[Record], fit: float) -> list[Grid]:
    """What the search for step sizes found, if there was one; `fit` is the error allowed."""
    losses: dict[str, dict[float, float | None]] = defaultdict(dict)
    unfit: dict[str, dict[float, float]] = defaultdict(dict)
    for record in records:
        if record["part"] == "search":
            losses[record["method"]][record["lr"]] = record["validation_nll"]
            if (error := record.get("train_error") or 0.0) > fit:
                unfit[record["method"]][record["lr"]] = error
    if not losses:
        return []
    rows = []
    for method, found in losses.items():
        finite = {
            lr: loss for lr, loss in found.items() if loss is not None and lr not in unfit[method]
        }
        best = min(finite, key=lambda lr: finite[lr]) if finite else None
        edge = "yes" if best in (min(found), max(found)) else "no"
        left_out = ", ".join(f"{lr:g}: {100 * e:.1f} %" for lr, e in unfit[method].items())
        rows.append(
            [
                method,
                losses_by_lr(found),
                *([left_out or "-"] if fit < 1 else []),
                "-" if best is None else f"{best:g}",
                edge,
            ]
        )
    limited = [f"left out: training error above {100 * fit:g} %"] if fit < 1 else []
    return [
        Grid(
            title=f"{NAMES[source]}: the search for step sizes",
            header=[
                "method",
                "NLL on held-out data, by step size",
                *limited,
                "taken",
                "at the edge",
            ],
            rows=rows,
            note="One seed; the lowest is taken. At the edge, a further step size may be better.",
        )
    ]
