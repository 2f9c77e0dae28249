"""The page of where the draws of table 1 lie, what is between them, and what each is worth."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paper.experiments.deep_diversity import FAMILIES
from paper.pages.deep_base import NAMES, make_page
from paper.report.compare import all_lower
from paper.report.gaps import lead, paired
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

SNAPSHOT = {family: methods[2] for family, methods in FAMILIES.items()}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
CLUSTERED = 2.0
"""Times the distance within cycles that the one between cycles must be."""

Group = Mapping[str, Any]


def page(results: Results) -> Page:
    """Claims, a table and a figure of each family of methods on each data set."""
    return make_page(
        results,
        "diversity of the draws",
        "Whether cycles reach different modes, and what that is worth.",
        _section,
        search=False,  # it is on the page of table 1
        note="Distances are between all weights, without statistics of batch normalisation, which "
        "are estimated anew from training data at every point of a line where a network has them. "
        "Errors by the number of "
        "cycles are of the first cycles of one run. A barrier is the largest rise of the error "
        "above the straight line between its ends; the mean over "
        "the lines of a seed is compared seed by seed.",
    )


def _section(
    setting: Mapping[str, Any], records: Sequence[Group]
) -> tuple[list[Claim], list[Part]]:
    groups = [record for record in records if record["part"] == "group"]
    claims: list[Claim] = []
    parts: list[Part] = []
    for family in FAMILIES:
        found = [group for group in groups if group["family"] == family]
        if found:
            claims += _claims(family, found)
            parts.append(_picture(family, found[0]))
    if groups:
        parts.append(_table(setting["source"], groups))
    return claims, parts


def _claims(family: str, groups: Sequence[Group]) -> list[Claim]:
    on = f"{NAMES[groups[0]['source']]}, {family}"
    return [
        _clusters(on, groups),
        *_barriers(on, groups),
        _cycles(on, family, groups),
        _singles(on, family, groups),
    ]


def _clusters(on: str, groups: Sequence[Group]) -> Claim:
    text = f"{on}: draws of different cycles lie apart, those of one cycle and of one long run near"
    names = ("within_cycles", "between_cycles", "traditional")
    found = [[group["weights"][name] for name in names] for group in groups]
    if any(value is None for values in found for value in values):
        return Claim(text, "figure only", "there are too few draws for distances")
    within, between, old = np.mean(np.array(found, dtype=float), axis=0)
    return Claim(
        text,
        "figure only",
        f"mean distance {between:.2f} between cycles, {within:.2f} within, {old:.2f} in the "
        f"traditional run (holds if the first is more than {CLUSTERED:g} times both)",
        gaps=[lead([one[1] - CLUSTERED * max(one[0], one[2]) for one in found])],
    )


def _barriers(on: str, groups: Sequence[Group]) -> list[Claim]:
    words = {"lines": "", "literal_lines": " (statistics interpolated too: the literal line)"}
    return [
        _barrier(f"{on}: the error rises between cycles, and not within a traditional run{how}",
                 [group[name] for group in groups])
        for name, how in words.items()
        if all(name in group for group in groups)
    ]  # fmt: skip


def _barrier(text: str, groups: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]) -> Claim:
    cyclical, traditional = (
        [100 * float(np.mean([line["barrier"] for line in lines[kind]])) for lines in groups]
        for kind in ("cyclical", "traditional")
    )
    ours = (
        f"mean barrier {mean_and_error(cyclical, 2)} and {mean_and_error(traditional, 2)} points "
        "of error"
    )
    return Claim(text, "figure only", ours, gaps=[paired(traditional, cyclical)])


def _cycles(on: str, family: str, groups: Sequence[Group]) -> Claim:
    cyclical, snapshot = f"c{family}", SNAPSHOT[family]
    count = len(groups[0]["functions"][cyclical]["error_by_cycles"])
    scores = {
        _after(name, number): _scores(groups, name, "error_by_cycles", [number - 1])
        for name in (cyclical, snapshot)
        for number in range(1, count + 1)
    }
    return all_lower(
        f"{on}: the error falls with the number of cycles, and is lower than Snapshot's at each",
        "figure only",
        scores,
        "error",
        [
            *((_after(name, count), _after(name, 1)) for name in (cyclical, snapshot)),
            *((_after(cyclical, n), _after(snapshot, n)) for n in range(1, count + 1)),
        ],
    )


def _after(name: str, cycles: int) -> str:
    return f"{name} after {cycles}"


def _singles(on: str, family: str, groups: Sequence[Group]) -> Claim:
    cyclical = f"c{family}"
    scores: dict[str, Mapping[int, Mapping[str, float]]] = {}
    for name in (cyclical, family):
        everything = range(len(groups[0]["functions"][name]["single_errors"]))
        scores[f"single {name}"] = _scores(groups, name, "single_errors", everything)
        scores[f"all {name}"] = _scores(groups, name, "error_by_cycles", [-1])
    return all_lower(
        f"{on}: single draws of {cyclical} are worse than those of {family}, and together better",
        "figure only",
        scores,
        "error",
        [(f"single {family}", f"single {cyclical}"), (f"all {cyclical}", f"all {family}")],
    )


def _scores(
    groups: Sequence[Group], name: str, field: str, places: Sequence[int]
) -> Mapping[int, Mapping[str, float]]:
    """By seed: the mean of some of a method's errors, and the test points that they are of."""
    found = {group["seed"]: group["functions"][name] for group in groups}
    return {
        seed: {
            "error": float(np.mean([errors[field][place] for place in places])),
            "tested": errors["tested"],
        }
        for seed, errors in found.items()
    }


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
                    *(_number(found.get(name)) for name in ("nll", "nll_without_first_cycle")),
                    _percent(found["disagreement_within"]),
                    _percent(found["disagreement_between"]),
                ]
            )
    return Grid(
        title=f"{NAMES[source]}: draws as functions",
        header=[
            *("method", "seed", "draws", "error of single draws, %", "error together, %"),
            *("NLL together", "NLL without the first cycle"),
            *("disagreement within a cycle, %", "between cycles, %"),
        ],
        rows=rows,
        note="Disagreement is the share of test images on which two draws differ. A first cycle "
        "that fits its training data less than later ones may have the lower NLL: it is less sure.",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


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
    cycles.xaxis.get_major_locator().set_params(integer=True)
    cycles.legend(fontsize="small")
    return Picture(
        f"{group['source']}-diversity-{family.lower()}",
        figure,
        f"{NAMES[group['source']]}, {family}, one seed: draws scaled to two dimensions; error on "
        "the lines between neighbouring cycles, and between draws of the traditional run; error "
        "of the first cycles together.",
    )
