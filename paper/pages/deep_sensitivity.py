"""The page of cSGLD beside parallel SGLD for other numbers of cycles and shares of exploration."""

from collections.abc import Mapping, Sequence
from typing import Any

from paper.pages.deep_base import NAMES, make_page, scores_by
from paper.report.compare import Scores, all_lower, shown
from paper.report.page import Claim, Grid, Page, Part, Results

PAPER = {
    (2, 0.8): ("4.27", "5.49"),
    (5, 0.8): ("4.33", "7.38"),
    (4, 0.7): ("4.08", "6.03"),
    (4, 0.9): ("4.34", "6.03"),
}


def page(results: Results) -> Page:
    """A claim and a table."""
    pairs = [(cycles, exploration) for cycles, exploration in results["config"]["pairs"]]

    def section(
        setting: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Claim], list[Part]]:
        scores = scores_by(
            records,
            "group",
            lambda record: _label(record["method"], record["cycles"], record["exploration"]),
        )
        source = setting["source"]
        if not scores:
            return [], []
        return [_claim(source, scores, pairs)], [_table(source, scores, pairs)]

    return make_page(
        results,
        "other cycles and exploration",
        "cSGLD with M cycles beside M chains of SGLD with an M-th of the epochs each.",
        section,
    )


def _label(method: str, cycles: int, exploration: float) -> str:
    return f"{method}, M={cycles}, β={exploration:g}"


def _claim(source: str, scores: Scores, pairs: list[tuple[int, float]]) -> Claim:
    known = [PAPER[pair] for pair in pairs if pair in PAPER and source == "cifar10"]
    return all_lower(
        f"On {NAMES[source]}, cSGLD has a lower error than parallel SGLD of the same budget, "
        "whatever M and β",
        ", ".join(f"{one} and {other}" for one, other in known) or "no numbers",
        scores,
        "error",
        [(_label("cSGLD", *pair), _label("parallel SGLD", *pair)) for pair in pairs],
    )


def _table(source: str, scores: Scores, pairs: list[tuple[int, float]]) -> Grid:
    rows = []
    for cycles, exploration in pairs:
        known = source == "cifar10" and (cycles, exploration) in PAPER
        paper = PAPER[cycles, exploration] if known else ("-", "-")
        for method, number in zip(("cSGLD", "parallel SGLD"), paper, strict=True):
            label = _label(method, cycles, exploration)
            cells = [shown(scores, label, score) for score in ("error", "nll", "ece")]
            rows.append([method, str(cycles), f"{exploration:g}", number, *cells])
    return Grid(
        title=f"{NAMES[source]}: cycles M and exploration β",
        header=["method", "M", "β", "error in the paper, %", "error, %", "NLL", "ECE"],
        rows=rows,
        note="Parallel SGLD does not depend on β: equal rows are the same chains.",
    )
