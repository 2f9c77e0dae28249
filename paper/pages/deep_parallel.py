"""The page of parallel chains beside cycles."""

from collections.abc import Mapping, Sequence
from typing import Any

from paper.experiments import deep_parallel as experiment
from paper.experiments.deep_parallel import KINDS
from paper.pages.deep_base import NAMES, make_page, scores_by
from paper.report.compare import Scores, all_lower, shown
from paper.report.page import Claim, Grid, Page, Part, Results

COLUMNS = tuple(name for name, *_ in experiment.COLUMNS)
PAPER = {
    ("cifar10", "SGLD"): ("4.09", "4.15", "5.11", "4.29"),
    ("cifar10", "SGHMC"): ("3.95", "4.09", "4.52", "4.27"),
    ("cifar100", "SGLD"): ("19.37", "20.29", "21.16", "20.55"),
    ("cifar100", "SGHMC"): ("19.19", "19.72", "20.82", "20.50"),
}


def page(results: Results) -> Page:
    """Claims and a table of each data set."""
    return make_page(
        results,
        "cycles beside parallel chains",
        "Four chains, cyclical or not, beside one cyclical chain at less cost.",
        _section,
    )


def _section(
    setting: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> tuple[list[Claim], list[Part]]:
    source = setting["source"]
    scores = scores_by(records, "group", lambda record: f"{record['kind']}, {record['column']}")
    groups = [record for record in records if record["part"] == "group"]
    if not scores:
        return [], []
    return _claims(source, scores), [_table(source, groups, scores)]


def _claims(source: str, scores: Scores) -> list[Claim]:
    texts = (
        (0, 1, "four cyclical chains have lower errors than four of decreasing step size"),
        (3, 2, "one cyclical chain has a lower error than four of decreasing step size, which "
               "cost twice as much"),
    )  # fmt: skip
    return [
        all_lower(
            f"On {NAMES[source]}, {text}",
            "; ".join(
                f"{kind}: {_paper(source, kind)[low]} and {_paper(source, kind)[high]}"
                for kind in KINDS
            ),
            scores,
            "error",
            [(f"{kind}, {COLUMNS[low]}", f"{kind}, {COLUMNS[high]}") for kind in KINDS],
        )
        for low, high, text in texts
    ]


def _paper(source: str, kind: str) -> Sequence[str]:
    return PAPER.get((source, kind), ("-",) * len(COLUMNS))


def _table(source: str, groups: Sequence[Mapping[str, Any]], scores: Scores) -> Grid:
    rows = []
    for kind in KINDS:
        for place, column in enumerate(COLUMNS):
            label = f"{kind}, {column}"
            if label not in scores:
                continue
            group = next(r for r in groups if (r["kind"], r["column"]) == (kind, column))
            rows.append(
                [
                    kind,
                    column,
                    f"{group['epochs']:g} / {group['epochs'] * group['chains']:g}",
                    _paper(source, kind)[place],
                    *(shown(scores, label, score) for score in ("error", "nll", "ece")),
                ]
            )
    return Grid(
        title=f"{NAMES[source]}: chains and cycles",
        header=[
            *("sampler", "chains", "epochs of a chain / of all"),
            *("error in the paper, %", "error, %", "NLL", "ECE"),
        ],
        rows=rows,
        note="All draws of all chains count the same.",
    )
