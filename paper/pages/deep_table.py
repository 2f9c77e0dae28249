"""The page of the eight methods."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.experiments.deep_table import LITERAL, MORE, SAME
from paper.experiments.methods import BY_NAME, FAMILIES, ONE_OVER_N
from paper.pages.deep_base import NAMES, add_one_cycle, better_length, make_page, name_of
from paper.report.compare import Scores, all_lower, gap, shown
from paper.report.gaps import lead
from paper.report.page import (
    COLOURS,
    Claim,
    Grid,
    Page,
    Part,
    Picture,
    Results,
    new_figure,
    standard_error,
)

METHODS = tuple(BY_NAME)
ITERATIONS = "decay in iterations"
ALIKE = 1.0
"""Largest difference between cycles of the log likelihood of all training data that is called
similar: weights by likelihood then differ by a factor of e."""
RIVALS = {
    0: "SGD and SGDM, each for all epochs or for those of one cycle, by validation NLL",
    1: "the Snapshot methods of their kind",
    2: "SGLD and SGHMC, the traditional samplers",
}
"""Places in a family of methods, and what is there."""
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
    return make_page(
        results,
        "eight methods at equal budgets",
        "One training budget, cut into cycles, beside plain training, snapshots, traditional "
        "sampling and deep ensembles: error, NLL and calibration on test data.",
        _section,
        label=_label,
    )


def _label(record: Mapping[str, Any]) -> str:
    literal = record["temperature"] == LITERAL
    return f"{record['method']} at {LITERAL}" if literal else record["method"]


def _section(
    setting: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> tuple[list[Claim], list[Part]]:
    source = name_of(setting)
    scores, options = _rows(records)
    if not scores:
        return [], []
    add_one_cycle(setting, records, scores)
    return [*_claims(source, scores, records), *_likelihoods(source, records)], [
        _table(source, setting, scores, options),
        _picture(source, scores),
        *_gains(source, setting, scores),
    ]


def _rows(
    records: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, dict[int, Mapping[str, Any]]], Mapping[str, Mapping[str, Any]]]:
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
                continue  # a network of an ensemble, or of one cycle
            if record["temperature"] == LITERAL:
                label = f"{label} at {LITERAL}"
            if record.get("decay_in") == "steps":
                label = f"{label}, {ITERATIONS}"
        scores[label][record["seed"]] = record["scores"]
        options[label] = record
    return scores, options


def _claims(source: str, scores: Scores, records: Sequence[Mapping[str, Any]]) -> list[Claim]:
    on = f"On {NAMES[source]}"

    def rivals(place: int) -> list[tuple[str, str]]:
        """The cyclical sampler of each family, and its rival."""
        others = [family[place] for family in FAMILIES]
        if place == 0:
            others = [better_length(scores, records, other) for other in others]
        return [(family[3], other) for family, other in zip(FAMILIES, others, strict=True)]

    claims = [
        all_lower(
            f"{on}, cSGLD and cSGHMC have a lower {name} than {RIVALS[rival]}",
            _paper(source, score, [family[place] for family in FAMILIES for place in (3, rival)]),
            scores,
            score,
            rivals(rival),
        )
        for score, name in (("error", "test error"), ("nll", "NLL"))
        for rival in RIVALS
    ]
    claims += [
        all_lower(
            f"{on}, {name} have lower errors than SGD and SGDM",
            _paper(
                source, "error", [family[place] for family in FAMILIES for place in (better, 0)]
            ),
            scores,
            "error",
            [(family[better], family[0]) for family in FAMILIES],
        )
        for better, name in ((1, "the Snapshot methods"), (2, "SGLD and SGHMC"))
    ]
    if SAME not in scores:
        return claims
    claims += [
        all_lower(
            f"{on}, cSGHMC has a lower {name} than a deep ensemble of the same total budget",
            "not compared",
            scores,
            score,
            [("cSGHMC", SAME)],
        )
        for score, name in (("error", "test error"), ("nll", "NLL"))
    ]
    return claims


def _paper(source: str, score: str, methods: Sequence[str]) -> str:
    """The paper's errors of these methods, if it has any on these data."""
    if score != "error":
        return "no number"
    known = PAPER.get(source.split(",", maxsplit=1)[0])
    if known is None:
        return "on CIFAR only"
    return ", ".join(f"{method} {known[method]}" for method in methods)


def _likelihoods(source: str, records: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Whether draws of all cycles fit the training data alike, as equal weights assume."""
    ours, gaps, least, most = [], [], math.inf, 0.0
    for method in ("cSGLD", "cSGHMC"):
        fits = [
            record["train"]
            for record in records
            if record["part"] == "chain"
            and record["method"] == method
            and record["temperature"] == ONE_OVER_N
            and record.get("train")
        ]
        if not fits:
            return []
        by_cycle = np.array([_by_cycle(fit) for fit in fits])
        spread = np.ptp(by_cycle, axis=1)
        nats = [float(s * fit["size"]) for s, fit in zip(spread, fits, strict=True)]
        gaps.append(lead([ALIKE - own for own in nats]))
        least, most = min(least, *nats), max(most, *nats)
        means = ", ".join(f"{mean:.4f}" for mean in by_cycle.mean(0))
        ours.append(f"{method}: training NLL by cycle {means}")
    return [
        Claim(
            f"On {NAMES[source]}, draws of all cycles have similarly high likelihoods, so that "
            "they may be weighed alike",
            "said, with no number",
            f"{'; '.join(ours)}. The log likelihoods of all training data of the cycles of one run "
            f"differ by {least:.0f} to {most:.0f} nats (alike: at most {ALIKE:g})",
            gaps=gaps,
        )
    ]


def _by_cycle(fit: Mapping[str, Any]) -> list[float]:
    """The mean training NLL of the draws of each cycle."""
    cycles = np.array(fit["cycles"])
    return [float(np.array(fit["nlls"])[cycles == cycle].mean()) for cycle in np.unique(cycles)]


def _table(
    source: str,
    setting: Mapping[str, Any],
    scores: Scores,
    options: Mapping[str, Mapping[str, Any]],
) -> Grid:
    rows = []
    further = [f"{method} at {LITERAL}" for method in METHODS]
    further += [f"{method}, {ITERATIONS}" for method in METHODS]
    short = [label for label in scores if "one cycle" in label]
    for label in (*METHODS, *further, *short, SAME, MORE):
        if label not in scores:
            continue
        option, found = options.get(label, {}), list(scores[label].values())
        epochs = setting["epochs"] * (setting["cycles"] if label == MORE else 1)
        rows.append(
            [
                label,
                f"{option['lr']:g}" if "lr" in option else "-",
                option.get("temperature", "0"),
                f"{epochs / (setting['cycles'] if 'one cycle' in label else 1):g}",
                str(found[0]["draws"]),
                str(len(found)),
                PAPER.get(source.split(",", maxsplit=1)[0], {}).get(label, "-"),
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
            "its step size; epochs are of all networks of a method together. NLL and ECE are of "
            "the predictions as they are: predictions are not stored, so that they cannot be "
            "scaled by a temperature, which would help the most overconfident methods most."
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
        if not all(np.isfinite(one.error) for one in (single, together)):
            continue
        sentences.append(
            f"Beside the error of {plain}, which trains one network for all epochs, that of single "
            f"draws of {cyclical} is {-100 * single.mean:+.2f} ± {100 * single.error:.2f} points, "
            f"and that of their average {-100 * together.mean:+.2f} ± "
            f"{100 * together.error:.2f}: averaging wins "
            f"{100 * (together.mean - single.mean):.2f} points."
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
            cyclical = label.startswith("c")
            axes.errorbar(
                np.mean(values),
                place,
                xerr=standard_error(values),
                color=COLOURS[0 if cyclical else 1],
                marker="o" if cyclical else "s",
                capsize=3,
            )
        axes.set(xlabel={"error": "test error, %", "nll": "NLL"}[score])
        axes.set_yticks(range(len(labels)), labels)
    panels[0].invert_yaxis()
    return Picture(
        f"{source.replace(', ', '-')}-methods",
        figure,
        f"{NAMES[source]}: error and NLL, mean and standard error over seeds; cyclical sampling "
        "as discs. Further left is better.",
    )
