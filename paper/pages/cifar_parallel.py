"""The page of parallel chains beside cycles."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from paper.pages.cifar import NAMES, describe, search_table
from paper.report.compare import RULE, Scores, all_lower, shown
from paper.report.page import Claim, Grid, Page, Picture, Results

KINDS = ("SGLD", "SGHMC")
COLUMNS = (
    "cyclical, parallel",
    "decreasing, parallel",
    "decreasing, parallel, half",
    "cyclical, single",
)
PAPER = {
    ("cifar10", "SGLD"): ("4.09", "4.15", "5.11", "4.29"),
    ("cifar10", "SGHMC"): ("3.95", "4.09", "4.52", "4.27"),
    ("cifar100", "SGLD"): ("19.37", "20.29", "21.16", "20.55"),
    ("cifar100", "SGHMC"): ("19.19", "19.72", "20.82", "20.50"),
}


def page(results: Results) -> Page:
    """Claims and a table of each data set."""
    records = list(results["records"].values())
    claims: list[Claim] = []
    parts: list[Grid | Picture | str] = []
    for setting in results["config"]["settings"]:
        source = setting["source"]
        groups = [r for r in records if r["part"] == "group" and r["source"] == source]
        scores = _scores(groups)
        parts.append(describe(setting))
        if scores:
            claims += _claims(source, scores)
            parts.append(_table(source, groups, scores))
        parts += search_table(source, records)
    parts.append(RULE)
    return Page(
        title="CIFAR: cycles beside parallel chains",
        summary="Four chains, cyclical or not, beside one cyclical chain at less cost.",
        claims=claims,
        parts=parts,
    )


def _scores(groups: Sequence[Mapping[str, Any]]) -> Scores:
    scores: dict[str, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for record in groups:
        if record["scores"] is not None:
            scores[f"{record['kind']}, {record['column']}"][record["seed"]] = record["scores"]
    return scores


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
                f"{kind}: {PAPER[source, kind][low]} and {PAPER[source, kind][high]}"
                for kind in KINDS
            ),
            scores,
            "error",
            [(f"{kind}, {COLUMNS[low]}", f"{kind}, {COLUMNS[high]}") for kind in KINDS],
        )
        for low, high, text in texts
    ]


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
                    PAPER[source, kind][place],
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
