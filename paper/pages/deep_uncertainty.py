"""The page of entropy on classes never seen, with cycles that converge."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paper.experiments.methods import BY_NAME, FAMILIES, ONE_OVER_N
from paper.experiments.uncertainty_methods import ENTROPY_GRID, LOW_ENTROPIES
from paper.pages.deep_base import NAMES, make_page
from paper.report.compare import Scores, all_lower, gap, shown
from paper.report.page import (
    COLOURS,
    Claim,
    Grid,
    Page,
    Part,
    Picture,
    Results,
    mean_and_error,
    new_figure,
)

METHODS = tuple(BY_NAME)
OUTSIDE = {"mnist": "notMNIST", "cifar10": "CIFAR-100", "cifar100": "CIFAR-10"}
LOW = 1
"""Position among `LOW_ENTROPIES` of the entropy below which a prediction is called sure."""
LINES = ("-", "--", "-.", ":")

Record = Mapping[str, Any]


def page(results: Results) -> Page:
    """Claims, a table and a figure of each data set."""
    return make_page(
        results,
        "entropy on other data",
        "How often each method is sure of itself on classes that it has never seen, where all "
        "methods fit their training data.",
        _section,
        label=_label,
        search=False,  # it is on the page of table 1
    )


def _label(record: Record) -> str:
    """The method, and the temperature where it is not that of table 1."""
    usual = record["temperature"] in ("0", ONE_OVER_N)
    return record["method"] if usual else f"{record['method']} at {record['temperature']}"


def _section(setting: Record, records: Sequence[Record]) -> tuple[list[Claim], list[Part]]:
    source = setting["source"]
    rows: dict[str, dict[int, Record]] = defaultdict(dict)
    for record in records:
        if record["part"] == "chain" and record["scores"]:
            outside = record["outside"]
            sure = {"sure": outside["below"][LOW], "unsure": -outside["entropy_outside"]}
            rows[_label(record)][record["seed"]] = {**record["scores"], **outside, **sure}
    if not rows:
        return [], []
    return _claims(source, rows), [_table(source, rows), _picture(source, rows)]


def _claims(source: str, rows: Scores) -> list[Claim]:
    outside, sure = OUTSIDE[source], f"share with entropy up to {LOW_ENTROPIES[LOW]:g}"
    texts = (
        (f"cSGLD and cSGHMC are less often sure of themselves on {outside} than SGD, Snapshot and "
         f"the traditional sampler of their kind ({sure})", "sure",
         [(family[3], other) for family in FAMILIES for other in family[:3]]),
        (f"SGLD and SGHMC are less often sure on {outside} than SGD and SGDM ({sure})", "sure",
         [(family[2], family[0]) for family in FAMILIES]),
        (f"Snapshot has less entropy on {outside} than the cyclical sampler of its kind", "unsure",
         [(family[3], family[1]) for family in FAMILIES]),
    )  # fmt: skip
    return [
        _with_nll(
            all_lower(f"On {NAMES[source]}, {text}", "figure only", rows, score, pairs), rows, pairs
        )
        for text, score, pairs in texts
    ]


def _with_nll(claim: Claim, rows: Scores, pairs: Sequence[tuple[str, str]]) -> Claim:
    """The claim, with the test NLL beside it: less trained networks are less sure of anything."""
    found = [gap(rows, "nll", *pair).side for pair in pairs]
    words = (
        f"the test NLL of the first is lower in {found.count(True)} of these comparisons, higher "
        f"in {found.count(False)}"
    )
    doubt = "fits worse" if found.count(False) > len(found) / 2 else ""
    return replace(claim, ours=f"{claim.ours}; {words}", doubt=doubt)


def _table(source: str, rows: Scores) -> Grid:
    order = [label for method in METHODS for label in rows if label.split(" at ")[0] == method]
    return Grid(
        title=f"{NAMES[source]}: entropy on {OUTSIDE[source]}",
        header=[
            *("method", "draws", "seeds", "test error, %", "NLL", "AUROC"),
            *(f"entropy on {OUTSIDE[source]}", "on test data"),
            *(f"share up to {entropy:g}" for entropy in LOW_ENTROPIES),
        ],
        rows=[
            [
                label,
                str(next(iter(rows[label].values()))["draws"]),
                str(len(rows[label])),
                *(shown(rows, label, score) for score in ("error", "nll", "auroc")),
                *(shown(rows, label, f"entropy_{part}") for part in ("outside", "test")),
                *(
                    mean_and_error([found["below"][place] for found in rows[label].values()], 3)
                    for place in range(len(LOW_ENTROPIES))
                ),
            ]
            for label in order
        ],
        note=(
            "Mean ± standard error over seeds; samplers without a temperature are at 1/N. AUROC "
            f"tells {OUTSIDE[source]} from test data by entropy; shares are of {OUTSIDE[source]}, "
            "up to that entropy in nats. Compare entropies within a family of methods, where the "
            "NLL is alike: a method that has learned less is less sure of everything."
        ),
    )


def _picture(source: str, rows: Scores) -> Picture:
    figure = new_figure(9, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, family in zip(panels, FAMILIES, strict=True):
        for method, colour, line in zip(family, COLOURS, LINES, strict=False):
            if method in rows:
                mean = np.mean([found["cdf"] for found in rows[method].values()], axis=0)
                axes.plot(ENTROPY_GRID, mean, color=colour, linestyle=line, label=method)
        axes.set(xlabel="entropy, nats", xlim=(0, ENTROPY_GRID[-1]), ylim=(0, 1))
        axes.legend()
    panels[0].set_ylabel(f"share of {OUTSIDE[source]} up to it")
    return Picture(
        f"{source}-entropy",
        figure,
        f"Distribution of the entropy on {OUTSIDE[source]}, mean over seeds; lower is better. Left "
        "without momentum, right with it.",
    )
