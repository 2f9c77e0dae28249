"""The figures of the page on convergence."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from csgmcmc.report.page import COLOURS, INK, Picture, new_figure

AVERAGES = ("weighted", "plain")
STYLES = ("-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1)), (0, (2, 1)))
LINES = 5  # values of alpha_0 in one figure


def rates(record: Mapping[str, Any]) -> Picture:
    """Bias and MSE against K, by alpha_0 and average, with the slopes of theorem 1."""
    figure = new_figure(9, 7)
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, (term, name) in enumerate({"bias": "bias", "mse": "MSE"}.items()):
        for column, average in enumerate(AVERAGES):
            panel = axes[row, column]
            for count, index in enumerate(_some(record["alpha0"])):
                values = record[average][term][index]
                _line(panel, count, record["K"], values, f"α₀ = {record['alpha0'][index]:g}")
            highest = max(max(values) for values in record[average][term])
            _reference(panel, record["K"], highest, -1.0)
            if (term, average) == ("mse", "plain"):
                _reference(panel, record["K"], highest, -2 / 3)
            panel.set(xscale="log", yscale="log", title=f"{name}, {average} average")
        axes[row, 0].set_ylabel(f"{name} of θ²")
    for panel in axes[1]:
        panel.set_xlabel("steps K")
    axes[0, 1].legend(fontsize="small")
    return Picture(
        "convergence-rates",
        figure,
        "Bias and MSE of averages of θ² on N(0, 1), exact, 4 cycles. Lines fall as 1/K until what "
        "the step size leaves; the plain average's MSE falls more slowly.",
    )


def distances(records: Sequence[Mapping[str, Any]]) -> Picture:
    """W2 against the step for all methods, at the longest run that none of them leaves float64."""
    whole = [
        record
        for record in records
        if all(method["end"] is not None for method in record["methods"].values())
    ]
    record = whole[-1]
    figure = new_figure(9, 4)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, kind in zip(panels, ("equal sum", "equal first step"), strict=True):
        shown = [name for name in record["methods"] if name == "cyclical" or name.endswith(kind)]
        for count, name in enumerate(shown):
            _line(panel, count, record["shown"], record["methods"][name]["curve"], name)
        panel.set(xscale="log", yscale="log", xlabel="step", title=kind)
        panel.legend(fontsize="small")
    least = min(method["end"] for method in record["methods"].values())
    panels[0].set_ylim(least / 2, 100)  # what an unstable start throws out is off the picture
    panels[0].set_ylabel("W₂ to the target")
    return Picture(
        "convergence-distance",
        figure,
        f"W₂ to a Gaussian in three dimensions, exact; K = {record['K']:,}, "
        f"α₀ = {record['alpha0']:g}. At an equal first step decreasing steps hardly move; at an "
        "equal sum they come as near as cyclical ones at the end of a cycle.",
    )


def floors(families: Mapping[str, Mapping[str, Any]]) -> Picture:
    """W2 at the end of the last cycle against K."""
    figure = new_figure(9, 4)
    panels = figure.subplots(1, len(families), sharey=True)
    for panel, (name, record) in zip(panels, families.items(), strict=True):
        for count, index in enumerate(_some(record["alpha0"])):
            label = f"α₀ = {record['alpha0'][index]:g}"
            _line(panel, count, record["K"], record["w2_end"][index], label)
        panel.set(xscale="log", yscale="log", xlabel="steps K", title=name)
    panels[0].set_ylabel("W₂ to the target")
    panels[0].legend(fontsize="small")
    return Picture(
        "convergence-floor",
        figure,
        "W₂ to N(0, 1) at the end of the last cycle. Cycles of a fixed length have a floor that "
        "falls with α₀; cycles that grow with K lower their steps ever more slowly, and have none.",
    )


def wells(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Picture:
    """W2 against the step on the double well, mean and standard error over seeds."""
    figure = new_figure(9, 4.5)
    panel = figure.subplots()
    for count, (name, seeds) in enumerate(runs.items()):
        values = np.array([seed["w2"] for seed in seeds])
        mean = values.mean(axis=0)
        if len(mean) == 1:  # exact draws, at no step
            panel.axhline(mean[0], color=INK, linestyle=":", label=name)
            continue
        colour = _line(panel, count, seeds[0]["steps"], mean, name)
        if len(seeds) > 1:
            error = values.std(axis=0, ddof=1) / len(seeds) ** 0.5
            low, high = np.maximum(mean - error, mean / 10), mean + error
            panel.fill_between(seeds[0]["steps"], low, high, color=colour, alpha=0.25, linewidth=0)
    panel.set(yscale="log", xlabel="step", ylabel="W₂ to the density")
    panel.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return Picture(
        "convergence-well",
        figure,
        "Chains that start in the lighter of two wells; bands are a standard error over seeds, "
        "and the dotted line is the distance of as many exact draws.",
    )


def _some(values: Sequence[float]) -> list[int]:
    """Places of at most LINES values, the first and last among them."""
    return sorted({round(place) for place in np.linspace(0, len(values) - 1, LINES)})


def _line(
    panel: Axes, count: int, x: Sequence[float], y: Sequence[float | None], label: str
) -> str:
    colour = COLOURS[count % len(COLOURS)]
    values = [np.nan if value is None else value for value in y]
    style = STYLES[count % len(STYLES)]
    panel.plot(x, values, linestyle=style, color=colour, label=label)
    return colour


def _reference(panel: Axes, steps: Sequence[float], height: float, exponent: float) -> None:
    """A thin line of a given slope, named at its end."""
    x = np.array([steps[0], steps[-1]], dtype=float)
    y = height * (x / x[0]) ** exponent
    panel.plot(x, y, color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
    panel.annotate(f"slope {exponent:.2g}", (x[1], y[1]), ha="right", va="bottom", fontsize="small")
