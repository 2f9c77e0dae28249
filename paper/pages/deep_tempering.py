"""The page of cSGLD by temperature."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.pages.deep_base import NAMES, make_page, scores_by
from paper.report.compare import RULE, Scores, all_lower, shown
from paper.report.page import COLOURS, Claim, Grid, Page, Part, Picture, Results, new_figure

PAPER = {
    "cifar10": "best at T=0.1: NLL 0.1331, error 4.22 %",
    "cifar100": "best at T=0.01: NLL 0.7835, error 20.53 %",
}


def page(results: Results) -> Page:
    """Claims, a table and a figure of each data set."""
    return make_page(
        results,
        "CIFAR: tempering",
        "cSGLD at temperatures from the posterior's, 1, to 0, which is optimisation.",
        _section,
        rule=f"{RULE} The best temperature is the one of the lowest test score, which favours it a "
        "little: so is the paper's.",
    )


def _section(
    setting: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> tuple[list[Claim], list[Part]]:
    source = setting["source"]
    scores = scores_by(records, "chain", lambda record: record["temperature"])
    if not scores:
        return [], []
    return _claims(source, scores), [_table(source, scores), _picture(source, scores)]


def _claims(source: str, scores: Scores) -> list[Claim]:
    claims = []
    for score, name in (("nll", "NLL"), ("error", "error")):
        for other, text in (("1", "the posterior's, T=1"), ("0", "optimisation, T=0")):
            tried = {
                label: np.mean([found[score] for found in seeds.values()])
                for label, seeds in scores.items()
                if label not in ("0", "1")
            }
            if not tried or other not in scores:
                continue
            best = min(tried, key=lambda label: tried[label])
            claims.append(
                all_lower(
                    f"On {NAMES[source]}, the {name} at the best temperature between 0 and 1 is "
                    f"lower than at {text}",
                    PAPER[source],
                    scores,
                    score,
                    [(best, other)],
                )
            )
    return claims


def _table(source: str, scores: Scores) -> Grid:
    return Grid(
        title=f"{NAMES[source]}: cSGLD by temperature",
        header=["temperature", "error, %", "NLL", "ECE", "error of single draws, %"],
        rows=[
            [
                label,
                *(shown(scores, label, score) for score in ("error", "nll", "ece")),
                shown(scores, label, "single_error"),
            ]
            for label in sorted(scores, key=float, reverse=True)
        ],
        note=f"The paper: {PAPER[source]}. Table 1 is at T=1/N.",
    )


def _picture(source: str, scores: Scores) -> Picture:
    labels = sorted(scores, key=float)
    figure = new_figure(9, 3)
    panels = figure.subplots(1, 2)
    for axes, score, factor in zip(panels, ("nll", "error"), (1, 100), strict=True):
        means = [
            factor * np.mean([found[score] for found in scores[label].values()]) for label in labels
        ]
        axes.plot(range(len(labels)), means, color=COLOURS[0], marker="o")
        axes.set_xticks(range(len(labels)), labels)
        axes.set(xlabel="temperature", ylabel={"nll": "NLL", "error": "test error, %"}[score])
    return Picture(
        f"{source}-tempering",
        figure,
        f"{NAMES[source]}: NLL and error of cSGLD by temperature, which is not to scale.",
    )
