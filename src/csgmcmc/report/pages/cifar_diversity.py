"""The page of where the draws of table 1 lie, what is between them, and what each is worth."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from csgmcmc.report.compare import ERRORS_APART
from csgmcmc.report.page import COLOURS, Claim, Grid, Page, Picture, Results, new_figure
from csgmcmc.report.pages.cifar import NAMES, describe

SNAPSHOT = {"SGLD": "Snapshot-SGD", "SGHMC": "Snapshot-SGDM"}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
CLUSTERED = 2.0
"""Times the distance within cycles that the one between cycles must be."""

Group = Mapping[str, Any]


def page(results: Results) -> Page:
    """Claims, a table and a figure of each family of methods on each data set."""
    groups = [r for r in results["records"].values() if r["part"] == "group"]
    claims: list[Claim] = []
    parts: list[Grid | Picture | str] = []
    for setting in results["config"]["settings"]:
        mine = [group for group in groups if group["source"] == setting["source"]]
        parts.append(describe(setting))
        for family in SNAPSHOT:
            found = [group for group in mine if group["family"] == family]
            if found:
                claims += _claims(family, found)
                parts.append(_picture(family, found[0]))
        if mine:
            parts.append(_table(setting["source"], mine))
    parts.append(
        "Distances are between all weights, without statistics of batch normalisation; these are "
        "estimated anew from training data at every point of a line. Errors by the number of "
        "cycles are of the first cycles of one run. A barrier is the largest rise of the error "
        "above the straight line between its ends; the standard error of a mean barrier is over "
        "the lines of all seeds."
    )
    return Page(
        title="CIFAR: diversity of the draws",
        summary="Whether cycles reach different modes, and what that is worth.",
        claims=claims,
        parts=parts,
    )


def _claims(family: str, groups: Sequence[Group]) -> list[Claim]:
    on = f"{NAMES[groups[0]['source']]}, {family}"
    return [
        _clusters(on, groups),
        _barriers(on, groups),
        _cycles(on, family, groups),
        _singles(on, family, groups),
    ]


def _clusters(on: str, groups: Sequence[Group]) -> Claim:
    text = f"{on}: draws of different cycles lie apart, those of one cycle and of one long run near"
    names = ("within_cycles", "between_cycles", "traditional")
    found = [[group["weights"][name] for name in names] for group in groups]
    if any(value is None for values in found for value in values):
        return Claim(text, "figure only", "there are too few draws for distances", None)
    within, between, old = np.mean(np.array(found, dtype=float), axis=0)
    return Claim(
        text,
        "figure only",
        f"mean distance {between:.2f} between cycles, {within:.2f} within, {old:.2f} in the "
        f"traditional run (holds if the first is more than {CLUSTERED:g} times both)",
        holds=all(one[1] > CLUSTERED * max(one[0], one[2]) for one in found),
    )


def _barriers(on: str, groups: Sequence[Group]) -> Claim:
    means, squares = [], []
    for kind in ("cyclical", "traditional"):
        barriers = [100 * line["barrier"] for group in groups for line in group["lines"][kind]]
        means.append(np.mean(barriers) if barriers else np.nan)
        squares.append(np.var(barriers, ddof=1) / len(barriers) if len(barriers) > 1 else np.nan)
    gap, error = float(means[0] - means[1]), float(np.sqrt(sum(squares)))
    text = f"{on}: the error rises between cycles, and not within a traditional run"
    if not np.isfinite(error):
        return Claim(text, "figure only", "there are too few lines to judge", None)
    return Claim(
        text,
        "figure only",
        f"mean barrier {means[0]:.2f} and {means[1]:.2f} points of error, {gap:.2f} ± {error:.2f} "
        f"apart (holds if by more than {ERRORS_APART:g} standard errors)",
        holds=gap > ERRORS_APART * error,
    )


def _cycles(on: str, family: str, groups: Sequence[Group]) -> Claim:
    names = (f"c{family}", SNAPSHOT[family])
    curves = {
        name: 100 * np.mean([g["functions"][name]["error_by_cycles"] for g in groups], axis=0)
        for name in names
    }
    cyclical, snapshot = (curves[name] for name in names)
    lower = int((cyclical < snapshot).sum())
    falls = all(curve[-1] < curve[0] for curve in curves.values())
    shown = "; ".join(
        f"{name} {', '.join(f'{error:.2f}' for error in curve)} %" for name, curve in curves.items()
    )
    return Claim(
        f"{on}: the error falls with the number of cycles, and is lower than Snapshot's at each",
        "figure only",
        f"{shown} (holds if both fall from the first to the last, and {names[0]} is lower at all: "
        f"here at {lower} of {len(cyclical)})",
        holds=falls and lower == len(cyclical),
    )


def _singles(on: str, family: str, groups: Sequence[Group]) -> Claim:
    names = (f"c{family}", family)
    single, together = (
        {
            name: float(
                np.mean([100 * np.mean(g["functions"][name][field][first:]) for g in groups])
            )
            for name in names
        }
        for field, first in (("single_errors", 0), ("error_by_cycles", -1))
    )
    cyclical, old = names
    return Claim(
        f"{on}: single draws of {cyclical} are worse than those of {old}, and together better",
        "figure only",
        f"single {single[cyclical]:.2f} and {single[old]:.2f} %, together "
        f"{together[cyclical]:.2f} and {together[old]:.2f} % (holds as the numbers are)",
        holds=single[cyclical] > single[old] and together[cyclical] < together[old],
    )


def _table(source: str, groups: Sequence[Group]) -> Grid:
    rows = []
    for group in groups:
        for name, found in group["functions"].items():
            rows.append(
                [
                    name,
                    str(group["seed"]),
                    str(len(found["single_errors"])),
                    f"{100 * np.mean(found['single_errors']):.2f}",
                    f"{100 * found['error_by_cycles'][-1]:.2f}",
                    _percent(found["disagreement_within"]),
                    _percent(found["disagreement_between"]),
                ]
            )
    return Grid(
        title=f"{NAMES[source]}: draws as functions",
        header=[
            *("method", "seed", "draws", "error of single draws, %", "error together, %"),
            *("disagreement within a cycle, %", "between cycles, %"),
        ],
        rows=rows,
        note="Disagreement is the share of test images on which two draws differ.",
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"


def _picture(family: str, group: Group) -> Picture:
    figure = new_figure(11, 3.4)
    places, lines, cycles = figure.subplots(1, 3)
    weights = group["weights"]
    points = np.array(weights["places"])
    labels = np.array([-1 if cycle is None else cycle for cycle in weights["cycles"]])
    for cycle in np.unique(labels):
        chosen = points[labels == cycle]
        places.plot(
            chosen[:, 0],
            chosen[:, 1],
            linestyle="none",
            color=COLOURS[(cycle + 1) % len(COLOURS)],
            marker=MARKERS[(cycle + 1) % len(MARKERS)],
            label=family if cycle < 0 else f"cycle {cycle + 1}",
        )
    places.set(title="draws by distance", xlabel="first direction", ylabel="second")
    places.legend(fontsize="small")
    for (kind, found), colour, style in zip(
        group["lines"].items(), COLOURS, ("-", "--"), strict=False
    ):
        for number, line in enumerate(found):
            shares = np.linspace(0, 1, len(line["error"]))
            errors = 100 * np.array(line["error"])
            label = {"cyclical": f"c{family}", "traditional": family}[kind]
            lines.plot(
                shares, errors, color=colour, linestyle=style, label=label if not number else None
            )
    lines.set(title="between draws", xlabel="share of the second", ylabel="test error, %")
    lines.legend(fontsize="small")
    for name, colour, style in zip(
        (f"c{family}", SNAPSHOT[family]), COLOURS, ("-", "--"), strict=False
    ):
        errors = 100 * np.array(group["functions"][name]["error_by_cycles"])
        cycles.plot(
            np.arange(1, len(errors) + 1), errors, color=colour, linestyle=style, marker="o",
            label=name,
        )  # fmt: skip
    cycles.set(title="by number of cycles", xlabel="cycles", ylabel="test error, %")
    cycles.legend(fontsize="small")
    return Picture(
        f"{group['source']}-diversity-{family.lower()}",
        figure,
        f"{NAMES[group['source']]}, {family}, one seed: draws scaled to two dimensions; error on "
        "the lines between neighbouring cycles, and between draws of the traditional run; error "
        "of the first cycles together.",
    )
