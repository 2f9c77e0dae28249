"""The page of the eight methods on CIFAR."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.report.compare import RULE, Scores, all_lower, gap, shown
from paper.report.page import COLOURS, Claim, Grid, Page, Picture, Results, new_figure

FAMILIES = (
    ("SGD", "Snapshot-SGD", "SGLD", "cSGLD"),
    ("SGDM", "Snapshot-SGDM", "SGHMC", "cSGHMC"),
)
METHODS = tuple(method for pair in zip(*FAMILIES, strict=True) for method in pair)
SAME, MORE = "ensemble, same budget", "ensemble, M budgets"
LITERAL = "0.0045"
NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
PAPER: Mapping[str, Mapping[str, str]] = {
    "cifar10": {
        "SGD": "5.29 ± 0.15",
        "SGDM": "5.17 ± 0.09",
        "Snapshot-SGD": "4.46 ± 0.04",
        "Snapshot-SGDM": "4.39 ± 0.01",
        "SGLD": "5.20 ± 0.06",
        "cSGLD": "4.29 ± 0.06",
        "SGHMC": "4.93 ± 0.1",
        "cSGHMC": "4.27 ± 0.03",
    },
    "cifar100": {
        "SGD": "23.61 ± 0.09",
        "SGDM": "22.98 ± 0.27",
        "Snapshot-SGD": "20.83 ± 0.01",
        "Snapshot-SGDM": "20.81 ± 0.10",
        "SGLD": "23.23 ± 0.01",
        "cSGLD": "20.55 ± 0.06",
        "SGHMC": "22.60 ± 0.17",
        "cSGHMC": "20.50 ± 0.11",
    },
}


def page(results: Results) -> Page:
    """Claims, a table and a figure of each data set, and the search for step sizes."""
    records = list(results["records"].values())
    claims: list[Claim] = []
    parts: list[Grid | Picture | str] = []
    for setting in results["config"]["settings"]:
        source = setting["source"]
        scores, options = _rows([r for r in records if r["source"] == source])
        parts.append(describe(setting))
        if scores:
            claims += _claims(source, scores)
            parts += [_table(source, setting, scores, options), _picture(source, scores)]
            parts += _gains(source, setting, scores)
        parts += search_table(source, records)
    parts.append(RULE)
    return Page(
        title="CIFAR: eight methods at equal budgets",
        summary=(
            "One training budget, cut into cycles, beside plain training, snapshots, traditional "
            "sampling and deep ensembles: error, NLL and calibration on test data."
        ),
        claims=claims,
        parts=parts,
    )


def _rows(
    records: Sequence[Mapping[str, Any]],
) -> tuple[Scores, Mapping[str, Mapping[str, Any]]]:
    """Scores by row of the table and seed, and what the runs of a row have in common."""
    scores: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    options: dict[str, Mapping[str, Any]] = {}
    whole = max((r["epochs"] for r in records if r["part"] == "chain"), default=0)
    seeds = {r["seed"] for r in records if r.get("method") == "cSGLD" and r["part"] == "chain"}
    for record in records:
        if record["part"] == "search" or record["scores"] is None:
            continue
        label = record["method"]
        if record["part"] == "chain":
            if record["epochs"] != whole or record["seed"] not in seeds:
                continue  # a network of an ensemble
            if record["temperature"] == LITERAL:
                label = f"{label} at {LITERAL}"
        scores[label][record["seed"]] = record["scores"]
        options[label] = record
    return scores, options


def _claims(source: str, scores: Scores) -> list[Claim]:
    on, paper = f"On {NAMES[source]}", PAPER[source]
    cyclical = [
        (family[3], other) for family in FAMILIES for other in (family[0], family[2], family[1])
    ]
    plain = [(better, family[0]) for family in FAMILIES for better in family[1:3]]
    return [
        all_lower(
            f"{on}, cSGLD and cSGHMC have lower test errors than SGD, Snapshot and the "
            "traditional sampler of their kind",
            f"cSGLD {paper['cSGLD']}, cSGHMC {paper['cSGHMC']}; the best of the others "
            f"{paper['Snapshot-SGDM']}",
            scores,
            "error",
            cyclical,
        ),
        all_lower(
            f"{on}, cSGLD and cSGHMC have lower NLL than SGD, Snapshot and the traditional "
            "sampler of their kind",
            "no numbers",
            scores,
            "nll",
            cyclical,
        ),
        all_lower(
            f"{on}, Snapshot and the traditional samplers have lower errors than SGD and SGDM",
            ", ".join(f"{method} {paper[method]}" for method in METHODS[:6]),
            scores,
            "error",
            plain,
        ),
        all_lower(
            f"{on}, cSGHMC has a lower error than a deep ensemble of the same total budget",
            "not compared",
            scores,
            "error",
            [("cSGHMC", SAME)],
        ),
    ]


def _table(
    source: str,
    setting: Mapping[str, Any],
    scores: Scores,
    options: Mapping[str, Mapping[str, Any]],
) -> Grid:
    rows = []
    for label in (*METHODS, *(f"{method} at {LITERAL}" for method in METHODS), SAME, MORE):
        if label not in scores:
            continue
        option, found = options[label], list(scores[label].values())
        ensemble = option["part"] == "group"
        rows.append(
            [
                label,
                "-" if ensemble else f"{option['lr']:g}",
                "0" if ensemble else option["temperature"],
                str(setting["epochs"] * (setting["cycles"] if label == MORE else 1)),
                str(found[0]["draws"]),
                str(len(found)),
                PAPER[source].get(label, "-"),
                *(shown(scores, label, score) for score in ("error", "nll", "ece")),
                shown(scores, label, "single_error"),
            ]
        )
    return Grid(
        title=f"{NAMES[source]}: test data",
        header=[
            *("method", "step size", "temperature", "epochs", "draws", "seeds"),
            *("error in the paper, %", "error, %", "NLL", "ECE", "error of single draws, %"),
        ],
        rows=rows,
        note=(
            "Mean ± standard error over seeds. The ensembles are of networks trained by SGDM, with "
            "its step size; epochs are of all networks of a method together."
        ),
    )


def _gains(source: str, setting: Mapping[str, Any], scores: Scores) -> list[str]:
    """What averaging wins, beside what a short cycle loses: the two sides of the method."""
    sentences = []
    for plain, _, _, cyclical in FAMILIES:
        single, together = (
            gap(scores, "single_error", cyclical, plain),
            gap(scores, "error", cyclical, plain),
        )
        if not all(np.isfinite(error) for _, error in (single, together)):
            continue
        sentences.append(
            f"Beside the error of {plain}, which trains one network for all epochs, that of single "
            f"draws of {cyclical} is {-100 * single[0]:+.2f} ± {100 * single[1]:.2f} points, and "
            f"that of their average {-100 * together[0]:+.2f} ± {100 * together[1]:.2f}: averaging "
            f"wins {100 * (together[0] - single[0]):.2f} points."
        )
    if not sentences:
        return []
    length = setting["epochs"] / setting["cycles"]
    return [
        f"{NAMES[source]}: what a cycle of {length:g} epochs loses, and what averaging wins. "
        + " ".join(sentences)
    ]


def _picture(source: str, scores: Scores) -> Picture:
    labels = [label for label in (*METHODS, SAME, MORE) if label in scores]
    figure = new_figure(9, 3.4)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, score, factor in zip(panels, ("error", "nll"), (100, 1), strict=True):
        for place, label in enumerate(labels):
            values = [factor * found[score] for found in scores[label].values()]
            error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
            cyclical = label.startswith("c")
            axes.errorbar(
                np.mean(values),
                place,
                xerr=error,
                color=COLOURS[0 if cyclical else 1],
                marker="o" if cyclical else "s",
                capsize=3,
            )
        axes.set(xlabel={"error": "test error, %", "nll": "NLL"}[score])
        axes.set_yticks(range(len(labels)), labels)
    panels[0].invert_yaxis()
    return Picture(
        f"{source}-methods",
        figure,
        f"{NAMES[source]}: error and NLL, mean and standard error over seeds; cyclical sampling "
        "as discs. Further left is better.",
    )


def describe(setting: Mapping[str, Any]) -> str:
    """The settings of a data set in words."""
    network = setting["network"]
    text = (
        f"{NAMES[setting['source']]}: {network['kind']} of width {network['width']}, batch "
        f"{network['batch']}, weight decay {network['weight_decay']:g}, {setting['epochs']} epochs "
        f"for every method, {setting['cycles']} cycles, exploration {setting['exploration']:g}, "
        f"crops and mirrored images. Momentum {network['momentum']:g} (the paper's eta = 0.9) in "
        f"cSGHMC, SGHMC and Snapshot-SGDM, {network['sgdm_momentum']:g} in SGDM. SGD and SGDM: one "
        "cosine to 0. SGLD and SGHMC: along a cosine to a hundredth of the step size in three "
        "quarters of the epochs, without noise; then a tenth of the step size times k^-0.5005, k "
        "in epochs. "
    )
    if not setting["searched"]:
        return text + "Step sizes are the paper's; those of SGD and SGDM, which it lacks, are 0.1."
    return text + (
        f"Step sizes: the lowest NLL on {setting['held_out']:,} held-out training images, of runs "
        f"of {setting['search_epochs']} epochs on the others, as long as a cycle."
    )


def search_table(source: str, records: Sequence[Mapping[str, Any]]) -> list[Grid]:
    """What the search for step sizes found, if there was one."""
    losses: dict[str, dict[float, float | None]] = defaultdict(dict)
    for record in records:
        if record["part"] == "search" and record["source"] == source:
            losses[record["method"]][record["lr"]] = record["validation_nll"]
    if not losses:
        return []
    rows = []
    for method, found in losses.items():
        finite = {lr: loss for lr, loss in found.items() if loss is not None}
        best = min(finite, key=lambda lr: finite[lr]) if finite else None
        tried = ", ".join(
            f"{lr:g}: " + ("diverged" if loss is None else f"{loss:.4f}")
            for lr, loss in sorted(found.items())
        )
        edge = "yes" if best in (min(found), max(found)) else "no"
        rows.append([method, tried, "-" if best is None else f"{best:g}", edge])
    return [
        Grid(
            title=f"{NAMES[source]}: the search for step sizes",
            header=["method", "NLL on held-out data, by step size", "taken", "at the edge"],
            rows=rows,
            note="One seed; the lowest is taken. At the edge, a further step size may be better.",
        )
    ]
