"""The page of sentences that no table of the paper tests: when noise begins, and large steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from paper.experiments.deep_stages import NOISE
from paper.pages.deep_base import NAMES, describe_diverged, make_page, name_of, scores_by
from paper.report.compare import Scores, all_lower, shown
from paper.report.page import Claim, Grid, Page, Part, Results

WORDS = {
    "late": "in the last part only",
    "rising": "rising along each cycle",
    "always": "from the first step",
}

Record = Mapping[str, Any]


def page(results: Results) -> Page:
    """Claims and a table of each data set."""
    temperatures = results["config"]["temperatures"]

    def section(setting: Record, records: Sequence[Record]) -> tuple[list[Claim], list[Part]]:
        scores = scores_by(records, "chain", _label)
        if not scores:
            return [], []
        claims = [
            *_noise(NAMES[name_of(setting)], scores, temperatures),
            *_super_convergence(setting, records, scores),
        ]
        diverged = describe_diverged(records, _label)
        return claims, [_table(NAMES[name_of(setting)], scores, diverged)]

    return make_page(
        results,
        "when noise begins, and large steps",
        "Sentences of the paper that none of its tables tests.",
        section,
        label=_label,
        search=False,  # it is on the page of table 1
    )


def _label(record: Record) -> str:
    if record["method"] == "SGD":
        return f"SGD, step size {record['lr']:g}, {record['epochs']:g} epochs"
    return _noisy(record["method"], record["temperature"], record["noise"])


def _noisy(method: str, temperature: str, noise: str) -> str:
    return f"{method} at {temperature}, noise {WORDS[noise]}"


def _noise(name: str, scores: Scores, temperatures: Sequence[str]) -> list[Claim]:
    """The claims about noise, from the chains that have not diverged."""
    on = f"On {name}"
    early = [
        (_noisy(method, temperature, "late"), _noisy(method, temperature, "always"))
        for temperature in temperatures
        for method in NOISE
    ]
    rising = [
        (_noisy("cSGLD", temperature, "rising"), _noisy("cSGLD", temperature, "late"))
        for temperature in temperatures
    ]
    return [
        all_lower(
            f"{on}, noise from the first step hurts: late noise has the lower NLL",
            "said, with no number",
            scores,
            "nll",
            _known(early, scores),
        ),
        all_lower(
            f"{on}, a temperature that rises along each cycle has a lower NLL than one that jumps "
            "(the paper only says that it may)",
            "not compared",
            scores,
            "nll",
            _known(rising, scores),
        ),
    ]


def _known(pairs: Sequence[tuple[str, str]], scores: Scores) -> list[tuple[str, str]]:
    """Pairs of which both have scores of the same seeds; all of them if there is none."""
    return [
        (one, other) for one, other in pairs if scores.get(one, {}).keys() & scores.get(other, {})
    ] or list(pairs)


def _super_convergence(setting: Record, records: Sequence[Record], scores: Scores) -> list[Claim]:
    """The searched step size in a tenth of the epochs, beside the best one in all of them."""
    runs = [record for record in records if record["method"] == "SGD" and record.get("validation")]
    whole = [record for record in runs if record["epochs"] == setting["epochs"]]
    if not whole:
        return []
    quick = min((r for r in runs if r not in whole), key=lambda r: r["validation"]["nll"])
    slow = min(whole, key=lambda record: record["validation"]["nll"])
    return [
        all_lower(
            f"On {NAMES[setting['source']]}, large steps that fall train up to ten times as fast: "
            "SGD has no higher error after a tenth of the epochs than after all, each with the "
            "step size that is better on validation data",
            "up to an order of magnitude",
            scores,
            "error",
            [(_label(quick), _label(slow))],
        )
    ]


def _table(name: str, scores: Scores, diverged: str) -> Grid:
    return Grid(
        title=f"{name}: noise and step sizes",
        header=["chain", "seeds", "error, %", "NLL", "ECE", "error of single draws, %"],
        rows=[
            [
                label,
                str(len(scores[label])),
                *(shown(scores, label, score) for score in ("error", "nll", "ece")),
                shown(scores, label, "single_error"),
            ]
            for label in scores
        ],
        note=f"Mean ± standard error over seeds.{diverged}",
    )
