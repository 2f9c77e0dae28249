"""The page of the schedules: arithmetic without chance, so that every claim is decided."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from paper.report.page import COLOURS, Claim, Grid, Page, Picture, Results, new_figure

ROUNDING = 1e-12
NEAR = 0.01
"""How far a sum may be from the paper's, which leaves out terms of the order of M / K."""

STYLES = {"explore": "--", "sample": "-"}
CURVES = {"cyclical": COLOURS[5], "decreasing": COLOURS[0]}


def page(results: Results) -> Page:
    """Claims on the formula and its sums, the curves, and a table of both schedules."""
    (record,) = results["records"].values()
    config, cyclical, decreasing = results["config"], record["cyclical"], record["decreasing"]
    return Page(
        title="Schedules: cyclical and decreasing step sizes",
        summary=(
            "The cyclical schedule starts each cycle at a large step size and ends it at almost "
            "none; the traditional one only falls."
        ),
        claims=[
            _formula(cyclical),
            *_sums(config, cyclical),
            _restarts(config, cyclical),
            _falls(cyclical, decreasing),
        ],
        parts=[
            "The paper gives no settings for its first figure; the preset `paper` takes those of "
            f"its 25 Gaussians. Here K = {config['steps']:,}, M = {config['cycles']}, "
            f"β = {config['exploration']}, α₀ = {config['cyclical_lr']}, and the decreasing step "
            f"size is {config['decreasing_lr']}·k^-{config['gamma']}.",
            _picture(config, record),
            _grid(cyclical, decreasing),
        ],
    )


def _formula(cyclical: Mapping[str, Any]) -> Claim:
    gap, stages = cyclical["largest_difference"], cyclical["steps_in_another_stage"]
    temperatures = cyclical["steps_at_another_temperature"]
    return Claim(
        "A step size is a cosine of r(k), the share of the cycle that is done: a cycle explores at "
        "T = 0 while r(k) < β, then samples at T = 1",
        paper="α₀/2·(cos(π·r(k)) + 1), r(k) = mod(k - 1, ⌈K/M⌉)/⌈K/M⌉",
        ours=f"largest difference {gap:.1g}; steps in another stage: {stages}, at another "
        f"temperature: {temperatures}",
        exact=gap <= ROUNDING and stages == temperatures == 0,
    )


def _sums(config: Mapping[str, Any], cyclical: Mapping[str, Any]) -> list[Claim]:
    steps, lr = config["steps"], config["cyclical_lr"]
    first = cyclical["sum"] / (lr * steps)
    second = cyclical["sum_of_squares"] / (lr**2 * steps)
    return [
        Claim(
            "The step sizes add up to half of what constant ones would",
            paper="K·α₀/2",
            ours=f"{first:.5f} K·α₀",
            exact=abs(first / (1 / 2) - 1) < NEAR,
        ),
        Claim(
            "Their squares add up to three eighths of what constant ones would",
            paper="3/8·K·α₀²",
            ours=f"{second:.5f} K·α₀²",
            exact=abs(second / (3 / 8) - 1) < NEAR,
        ),
    ]


def _restarts(config: Mapping[str, Any], cyclical: Mapping[str, Any]) -> Claim:
    starts = cyclical["cycle_starts"]
    restarted = sum(start == config["cyclical_lr"] for start in starts)
    return Claim(
        "Every cycle restarts with the large step size",
        paper="α₀",
        ours=f"{restarted} of {len(starts)} cycles start at α₀",
        exact=restarted == len(starts),
    )


def _falls(cyclical: Mapping[str, Any], decreasing: Mapping[str, Any]) -> Claim:
    ours, theirs = _shares_left(cyclical), _shares_left(decreasing)
    return Claim(
        "Inside a cycle the step size falls further than the traditional one does",
        paper="more quickly",
        ours=f"to {max(ours):.2g} of its start or less; the decreasing one over the same steps to "
        f"{theirs[0]:.2g} in the first cycle, {theirs[-1]:.2g} in the last",
        exact=all(own < other for own, other in zip(ours, theirs, strict=True)),
    )


def _shares_left(schedule: Mapping[str, Any]) -> list[float]:
    starts, ends = schedule["cycle_starts"], schedule["cycle_ends"]
    return [end / start for start, end in zip(starts, ends, strict=True)]


def _picture(config: Mapping[str, Any], record: Mapping[str, Any]) -> Picture:
    figure = new_figure(6.4, 5)
    plain, logarithmic = figure.subplots(2, sharex=True)
    for axes in (plain, logarithmic):
        for name, colour in CURVES.items():
            _draw(axes, name, colour, record[name]["curve"])
        axes.set_ylabel("step size")
        axes.margins(x=0)
    plain.set_ylim(0, None)
    logarithmic.set_yscale("log")
    logarithmic.set_xlabel("step")
    plain.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    return Picture(
        "step-sizes",
        figure,
        f"Step sizes of the first {config['cycles_shown']} of {config['cycles']} cycles, below on "
        "a logarithmic scale. Dashed: exploration, at temperature 0. Solid: sampling, at "
        "temperature 1. The decreasing schedule samples all along.",
    )


def _draw(axes: Axes, name: str, colour: str, pieces: Sequence[Mapping[str, Any]]) -> None:
    labelled = set()
    for piece in pieces:
        stage = piece["stage"]
        label = f"{name}: {stage}" if name == "cyclical" else name
        axes.plot(
            piece["steps"],
            piece["step_sizes"],
            color=colour,
            linestyle=STYLES[stage],
            label="" if label in labelled else label,
        )
        labelled.add(label)


def _grid(cyclical: Mapping[str, Any], decreasing: Mapping[str, Any]) -> Grid:
    return Grid(
        "Both schedules over all steps",
        ["schedule", "sum of step sizes", "sum of squares", "first", "last", "draws"],
        [
            [
                name,
                f"{schedule['sum']:.4g}",
                f"{schedule['sum_of_squares']:.4g}",
                f"{schedule['cycle_starts'][0]:.3g}",
                f"{schedule['cycle_ends'][-1]:.3g}",
                f"{schedule['draws']:,}",
            ]
            for name, schedule in [("cyclical", cyclical), ("decreasing", decreasing)]
        ],
        note="Draws are the steps of the sampling stages.",
    )
