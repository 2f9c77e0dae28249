"""The page of what people would use instead."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.experiments.deep_table import MORE, SAME
from paper.pages.deep_base import NAMES, add_one_cycle, make_page, name_of, scores_by
from paper.report.compare import Scores, all_lower, shown
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

OURS, PLAIN = "cSGHMC", "SGDM"
WORDS = {
    "MC dropout": "rate",
    "SWAG": "share of the step size",
    "Laplace, last layer": "factor of the prior's precision",
    "Laplace, diagonal": "factor of the prior's precision",
}

Record = Mapping[str, Any]


def page(results: Results) -> Page:
    """Claims, a table and a figure of each data set."""
    return make_page(
        results,
        "what people would use instead",
        "cSGHMC beside a deep ensemble, MC dropout, SWAG and Laplace approximations, each with "
        "several values of its hyperparameter; the validation data of the first seed choose.",
        _section,
        label=lambda record: (
            f"{record['method']} at {record['temperature']}, step size {record['lr']:g}"
        ),
        search=False,  # it is on the page of table 1
    )


def _section(setting: Record, records: Sequence[Record]) -> tuple[list[Claim], list[Part]]:
    every = [record for record in records if record["part"] == "group"]
    groups = [record for record in every if record["scores"]]
    diverged = [f"{r['method']}, seed {r['seed']}" for r in every if not r["scores"]]
    if not groups:
        return [], []
    name = NAMES[name_of(setting)]
    scores = {**scores_by(groups, "group", lambda record: record["method"])}
    add_one_cycle(setting, records, scores)
    seconds = next((r["seconds_of"] for r in records if r["part"] == "costs"), {})
    length = setting["epochs"] / setting["cycles"]
    table = _table(name, groups, scores, seconds, diverged, length)
    return _claims(name, scores), [table, _picture(name, scores)]


def _claims(name: str, scores: Scores) -> list[Claim]:
    rivals = [method for method in scores if method not in (OURS, MORE)]
    claims = [
        all_lower(
            f"On {name}, {OURS} has a lower {words} than each rival of the same budget",
            "not compared",
            scores,
            score,
            [(OURS, rival) for rival in rivals],
        )
        for score, words in (("error", "test error"), ("nll", "NLL"))
    ]
    if SAME in scores:
        claims += [
            all_lower(
                f"On {name}, {OURS} has a lower {words} than a deep ensemble of the same budget",
                "not compared",
                scores,
                score,
                [(OURS, SAME)],
            )
            for score, words in (("error", "test error"), ("nll", "NLL"))
        ]
    return claims


def _table(
    name: str,
    groups: Sequence[Record],
    scores: Scores,
    seconds: Record,
    diverged: Sequence[str],
    length: float,
) -> Grid:
    rows = []
    for method in scores:
        found = [group for group in groups if group["method"] == method]
        if not found:
            continue  # of one cycle: below
        chosen = ", ".join(dict.fromkeys(str(group["chosen"]) for group in found))
        hyperparameter = f"{WORDS[method]} {chosen}" if method in WORDS else chosen
        rows.append(
            [
                method,
                hyperparameter,
                f"{found[0]['epochs']:g}",
                str(found[0]["scores"]["draws"]),
                *(shown(scores, method, score) for score in ("error", "nll", "ece", "auroc")),
                *(_times(seconds, method, kind) for kind in ("training", "predicting")),
                f"{found[0]['bytes'] / 1e6:.1f}",
            ]
        )
    for method in scores:
        if "one cycle" in method:
            own = [shown(scores, method, score) for score in ("error", "nll", "ece")]
            rows.append([method, "the step size", f"{length:g}", "1", *own, *"----"])
    return Grid(
        title=f"{name}: what people would use instead",
        header=[
            *("method", "chosen on validation data", "epochs", "networks of a prediction"),
            *("error, %", "NLL", "ECE", "AUROC"),
            *("time to train", "time to predict", "MB to store"),
        ],
        rows=rows,
        note=(
            "Mean ± standard error over seeds. Epochs are those of all networks of a method "
            "together. AUROC tells images of other classes from test data by entropy. NLL and ECE "
            "are of the predictions as they are: predictions are not stored, so that they cannot "
            "be scaled by a temperature, which would help the most overconfident methods most."
            + _unequal(groups)
            + (f" Diverged, and not in the table: {'; '.join(diverged)}." if diverged else "")
            + _unit(seconds)
        ),
    )


def _unequal(groups: Sequence[Record]) -> str:
    """Which methods could choose their step size, where not all could."""
    several = {r["method"] for r in groups if len(_step_sizes(r)) > 1}
    if not several or several == {r["method"] for r in groups}:
        return ""
    return (
        f" Only {', '.join(sorted(several))} chose between several step sizes; the others have "
        "the step size of the search, which is the largest that it tried for SGDM. The table "
        "favours those that chose."
    )


def _step_sizes(group: Record) -> set[str]:
    return {
        value.rpartition("step size ")[2]
        for value in group["validation_nll"]
        if "step size" in value
    }


def _times(seconds: Record, method: str, kind: str) -> str:
    """Times that of plain training; the costs are measured last."""
    if method not in seconds:
        return "-"
    return f"{seconds[method][kind] / seconds[PLAIN][kind]:.2f}"


def _unit(seconds: Record) -> str:
    if not seconds:
        return ""
    one = seconds[PLAIN]
    return (
        f" Times are relative to {PLAIN}, which takes {one['training']:.0f} s to train and "
        f"{one['predicting']:.2f} s to predict all test images, on one core; the methods are timed "
        "in turn, in one process."
    )


def _picture(name: str, scores: Scores) -> Picture:
    labels = list(scores)
    figure = new_figure(11, 3.2)
    panels = figure.subplots(1, 3, sharey=True)
    kinds = (("error", 100, "test error, %"), ("nll", 1, "NLL"), ("auroc", 1, "AUROC"))
    for axes, (score, factor, words) in zip(panels, kinds, strict=True):
        for place, label in enumerate(labels):
            values = [factor * found[score] for found in scores[label].values() if score in found]
            if not values:
                continue
            axes.errorbar(
                np.mean(values),
                place,
                xerr=standard_error(values),
                color=COLOURS[0 if label == OURS else 1],
                marker="o" if label == OURS else "s",
                capsize=3,
            )
        axes.set(xlabel=words)
        axes.set_yticks(range(len(labels)), labels)
    panels[0].invert_yaxis()
    return Picture(
        f"{name.lower()}-rivals",
        figure,
        f"{name}: error and NLL (further left is better) and AUROC on other data (further right is "
        f"better), mean and standard error over seeds; {OURS} as a disc.",
    )
