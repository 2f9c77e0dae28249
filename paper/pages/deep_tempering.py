"""The page of cSGLD by temperature."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.pages.deep_base import NAMES, describe_diverged, make_page, name_of, scores_by
from paper.report.compare import Scores, all_lower, shown
from paper.report.page import COLOURS, Claim, Grid, Page, Part, Picture, Results, new_figure

PAPER = {
    "cifar10": "best at T=0.1: NLL 0.1331, error 4.22 %",
    "cifar100": "best at T=0.01: NLL 0.7835, error 20.53 %",
}
ELSEWHERE = "on CIFAR-10 best at T=0.1, on CIFAR-100 at T=0.01"

Record = Mapping[str, Any]
ByExploration = Mapping[float, Scores]
"""Scores by exploration, temperature and seed."""


def page(results: Results) -> Page:
    """Claims, a table and a figure of each data set."""
    return make_page(
        results,
        "tempering",
        "cSGLD at temperatures from the posterior's, 1, to 0, which is optimisation.",
        _section,
        note="Where there are validation data, the temperature between 0 and 1 is that of "
        "the lowest NLL on them. Else it is the one of the lowest test score, which favours it a "
        "little: so is the paper's. The paper's T has two readings: the temperature, and, as in "
        "the published code, the factor of the noise's standard deviation, whose square is the "
        "temperature.",
        label=_label,
    )


def _label(record: Record) -> str:
    return f"T={record['temperature']}, β={record.get('exploration', 0.0):g}"


def _section(setting: Record, records: Sequence[Record]) -> tuple[list[Claim], list[Part]]:
    name, source = NAMES[name_of(setting)], setting["source"]
    chains = [record for record in records if record["part"] == "chain" and record["scores"]]
    explorations = sorted({record.get("exploration", 0.0) for record in chains})
    found = {beta: _of(chains, beta, "scores") for beta in explorations}
    chosen_by = {beta: _of(chains, beta, "validation") for beta in explorations}
    if not found:
        return [], []
    claims = [
        claim
        for beta in explorations
        for claim in _claims(name, source, beta, found[beta], chosen_by[beta])
    ]
    diverged = describe_diverged(records, _label)
    table = _table(name, source, found, chosen_by, _noisy_steps(setting, chains), diverged)
    return claims, [table, _picture(name_of(setting), found)]


def _of(chains: Sequence[Record], exploration: float, part: str) -> Scores:
    """Scores on test or validation data by temperature and seed."""
    kept = [
        {**record, "scores": record[part]}
        for record in chains
        if record.get("exploration", 0.0) == exploration and record.get(part)
    ]
    return scores_by(kept, "chain", lambda record: record["temperature"])


def _claims(
    data: str, source: str, exploration: float, scores: Scores, validation: Scores
) -> list[Claim]:
    claims = []
    on = f"On {data}" + (f", β={exploration:g}" if exploration else "")
    for score, words in (("nll", "NLL"), ("error", "error")):
        best = _best(validation, "nll") if validation else _best(scores, score)
        for other, text in (("1", "the posterior's, T=1"), ("0", "optimisation, T=0")):
            if best is None or other not in scores:
                continue
            claims.append(
                all_lower(
                    f"{on}, the {words} at the best temperature between 0 and 1, {best}, is lower "
                    f"than at {text}",
                    PAPER.get(source, ELSEWHERE),
                    scores,
                    score,
                    [(best, other)],
                )
            )
    return claims


def _noisy_steps(setting: Record, chains: Sequence[Record]) -> str:
    """In how many steps of a cycle a temperature can act at all."""
    sizes = {record["train"]["size"] for record in chains if record.get("train")}
    if len(sizes) != 1:
        return ""
    steps = sizes.pop() // setting["network"]["batch"] * setting["epochs"] / setting["cycles"]
    noisy = ", ".join(
        f"{round((1 - (beta or setting['exploration'])) * steps)} at β="
        f"{beta or setting['exploration']:g}"
        for beta in sorted({record.get("exploration", 0.0) for record in chains})
    )
    return (
        f"Of the {steps:.0f} steps of a cycle, the last ones have noise: {noisy}. Where they are "
        "few, and small, no temperature can do much."
    )


def _best(scores: Scores, score: str) -> str | None:
    """The temperature between 0 and 1 of the lowest mean."""
    means = {label: _mean(scores, label, score) for label in scores if label not in ("0", "1")}
    return min(means, key=lambda label: means[label]) if means else None


def _mean(scores: Scores, label: str, score: str) -> float:
    return float(np.mean([found[score] for found in scores[label].values()]))


def _table(
    name: str,
    source: str,
    found: ByExploration,
    chosen_by: ByExploration,
    noise: str,
    diverged: str,
) -> Grid:
    rows = [
        [
            f"{exploration:g}",
            label,
            f"{float(label) ** 0.5:.2g}",
            str(next(iter(scores[label].values()))["draws"]),
            *(shown(scores, label, score) for score in ("error", "nll", "ece")),
            shown(scores, label, "single_error"),
            shown(chosen_by[exploration], label, "nll"),
        ]
        for exploration, scores in found.items()
        for label in sorted(scores, key=float, reverse=True)
    ]
    return Grid(
        title=f"{name}: cSGLD by temperature",
        header=[
            *("β", "temperature", "the paper's T if it is the factor of the noise", "draws"),
            *("error, %", "NLL", "ECE", "error of single draws, %", "NLL on validation data"),
        ],
        rows=rows,
        note=f"The paper: {PAPER.get(source, ELSEWHERE)}. Table 1 is at T=1/N. {noise}{diverged}",
    )


def _picture(setting: str, found: ByExploration) -> Picture:
    labels = sorted({label for scores in found.values() for label in scores}, key=float)
    figure = new_figure(9, 3)
    panels = figure.subplots(1, 2)
    for axes, score, factor in zip(panels, ("nll", "error"), (1, 100), strict=True):
        for (exploration, scores), colour, line in zip(
            found.items(), COLOURS, ("-", "--", ":"), strict=False
        ):
            places = [place for place, label in enumerate(labels) if label in scores]
            means = [factor * _mean(scores, labels[place], score) for place in places]
            axes.plot(
                places, means, color=colour, linestyle=line, marker="o", label=f"β={exploration:g}"
            )
        axes.set_xticks(range(len(labels)), labels)
        axes.set(xlabel="temperature", ylabel={"nll": "NLL", "error": "test error, %"}[score])
        if len(found) > 1:
            axes.legend()
    return Picture(
        f"{setting.replace(',', '').replace(' ', '-')}-tempering",
        figure,
        f"{NAMES[setting]}: NLL and error of cSGLD by temperature, which is not to scale.",
    )
