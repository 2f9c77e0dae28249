"""The figures of a run's page, as HTML with their captions."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from scipy import stats

from csgmcmc import diagnostics, pages
from csgmcmc.checks.evaluation import Array, Evaluation
from csgmcmc.checks.sampling import TEMPERATURE_FACTOR, way_off
from csgmcmc.diagnostics.calibration import ReliabilityCurve
from csgmcmc.diagnostics.temperature import Temperature
from csgmcmc.draws import Draw
from csgmcmc.pages import COLOURS, INK, STYLE, new_figure

CHART_STYLE: Any = {**STYLE, "font.size": 9.5, "legend.fontsize": 9}
WIDE, NARROW = 6.2, 4.5  # inches
BLUE, ORANGE, GREEN, VERMILION = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[5]
FAINT = {"color": INK, "alpha": 0.2, "linewidth": 0.8}
ABOVE: Any = {"loc": "lower center", "bbox_to_anchor": (0.5, 1), "ncols": 3}  # a legend
MAX_MARKS = 300  # of draws, and of new cycles
MAX_PARAMETERS = 40
MAX_NAME = 26  # letters of a parameter's name
LEVELS = np.linspace(0.05, 0.95, 19)  # of predictive intervals
TEMPERATURE_RANGE = (1e-3, 1e3)  # relative to the target; an estimate may be negative, or far off

Traces = dict[int, dict[str, Array]]
"""The columns of the log of each chain."""


def trace_chart(traces: Traces, draws: Sequence[Draw]) -> str:
    """Loss, lr and temperature by step, with marks at draws and lines between cycles."""
    figure = new_figure(WIDE, 5.2)
    losses, rates, temperatures = panels = figure.subplots(3, sharex=True, height_ratios=[2, 1, 1])
    first = next(iter(traces.values()))
    for axes in panels:
        for start in first["step"][1:][np.diff(first["cycle"]) != 0][:MAX_MARKS]:
            axes.axvline(start, **FAINT)
        axes.margins(x=0.01)
    for number, (chain_id, trace) in enumerate(traces.items()):
        colour, step = COLOURS[number % len(COLOURS)], trace["step"]
        losses.plot(step, trace["loss"], color=colour, alpha=0.3, linewidth=0.7)
        means = _means(step), _means(trace["loss"])
        losses.plot(*means, color=colour, linewidth=1.6, label=f"chain {chain_id}")
        rates.plot(step, trace["lr"], color=colour, linewidth=1.2)
        temperatures.plot(step, trace["temperature"], color=colour, linewidth=1.2)
        steps = [draw.step for draw in draws if draw.chain_id == chain_id]
        steps = steps[:: max(1, -(-len(steps) // MAX_MARKS))]
        at = np.interp(steps, step, trace["lr"])
        rates.plot(steps, at, "o", color=VERMILION, markersize=3.5, clip_on=False, zorder=3)
    positive = all((trace["loss"] > 0).all() for trace in traces.values())
    losses.set(ylabel="loss", yscale="log" if positive else "linear")
    rates.set(ylabel="lr", ylim=(0, None))
    temperatures.set(ylabel="temperature", ylim=(0, None), xlabel="step")
    if 1 < len(traces) <= 6:
        losses.legend(**ABOVE)
    caption = "Loss of the minibatch without the prior, faint, and its mean. Dots: draws. "
    return _figure("trace", figure, f"{caption}Vertical lines: a new cycle begins.")


def scores_chart(evaluation: Evaluation) -> str:
    """NLL and error of the average of the first draws, and of each draw alone."""
    figure = new_figure(NARROW, 4.2)
    panels = figure.subplots(2, sharex=True)
    label, scale = ("RMSE", 1) if evaluation.probs is None else ("error, %", 100)
    errors = np.array([evaluation.error(each) for each in evaluation.members])
    parts = (
        ("NLL", evaluation.nll_by_draws(evaluation.weights), evaluation.nll_of_draws),
        (label, scale * evaluation.error_by_draws(), scale * errors),
    )
    numbers = np.arange(1, len(errors) + 1)
    marker = "o" if len(numbers) <= 40 else None
    for axes, (name, *curves) in zip(panels, parts, strict=True):
        # An axis cannot show infinite values.
        averages, alone = (np.where(np.isfinite(curve), curve, np.nan) for curve in curves)
        axes.plot(numbers, alone, ".", color=ORANGE, markersize=4, label="alone")
        axes.plot(numbers, averages, color=BLUE, marker=marker, markersize=3.5, label="average")
        axes.set_ylabel(name)
    panels[0].legend(**ABOVE)
    panels[1].set_xlabel("number of draws")
    panels[1].xaxis.get_major_locator().set_params(integer=True)
    caption = "Average of the first draws, by chain and step, and each draw alone."
    return _figure("scores", figure, caption)


def calibration_chart(evaluation: Evaluation) -> str:
    """Accuracy against confidence, with 99% intervals; for numbers coverage against level."""
    figure = new_figure(NARROW, 3.8)
    axes = figure.subplots()
    curve = calibration_curve(evaluation)
    hits = np.round(curve.accuracy * curve.count)
    low = np.nan_to_num(stats.beta.ppf(0.005, hits, curve.count - hits + 1), nan=0.0)
    high = np.nan_to_num(stats.beta.ppf(0.995, hits + 1, curve.count - hits), nan=1.0)
    axes.plot([0, 1], [0, 1], **{**FAINT, "alpha": 0.5, "linestyle": "--"})
    axes.vlines(curve.confidence, low, high, color=BLUE, alpha=0.5, linewidth=1.2)
    start = np.floor(10 * min(curve.confidence.min(), low.min())) / 10
    axes.set(xlim=(start - 0.02, 1.02), ylim=(start - 0.02, 1.02))
    if evaluation.probs is not None:
        axes.set(xlabel="confidence", ylabel="accuracy")
        size = 12 + 90 * curve.count / curve.count.max()
        caption = "Accuracy against confidence, in bins; a larger dot has more points, and lines "
        caption += "are 99% intervals."
    else:
        axes.set(xlabel="level of the interval", ylabel="share of targets inside")
        size = 30
        caption = "Share of targets inside central predictive intervals, with 99% intervals. "
        caption += f"90% intervals contain {curve.accuracy[-2]:.2%}."
    axes.scatter(curve.confidence, curve.accuracy, s=size, color=BLUE, alpha=0.9)
    return _figure("calibration", figure, caption)


def calibration_curve(evaluation: Evaluation) -> ReliabilityCurve:
    """Accuracy by confidence; for numbers, coverage by level of the intervals."""
    if evaluation.probs is not None:
        return diagnostics.reliability_curve(evaluation.probs, evaluation.targets)
    assert evaluation.ranks is not None  # noqa: S101  (classes or numbers)
    off = np.abs(evaluation.ranks - 0.5)
    inside = np.array([(off <= level / 2).mean() for level in LEVELS])
    return ReliabilityCurve(LEVELS, inside, np.full(len(LEVELS), len(off)))


def temperature_chart(temperatures: dict[str, Temperature]) -> str:
    """Temperature of each parameter relative to its target."""
    names = list(temperatures)[:MAX_PARAMETERS]
    figure = new_figure(NARROW, 1.1 + 0.24 * len(names))
    axes = figure.subplots()
    for row, name in enumerate(names):
        one = temperatures[name]
        relative = np.array([one.low, one.value, one.high]) / one.target
        low, value, high = np.clip(relative, *TEMPERATURE_RANGE)
        colour, marker = (VERMILION, "s") if way_off(one) else (GREEN, "o")
        axes.hlines(row, low, high, color=colour, linewidth=1.6)
        axes.plot(value, row, marker, color=colour, markersize=4.5)
    axes.axvspan(1 / TEMPERATURE_FACTOR, TEMPERATURE_FACTOR, color=INK, alpha=0.08, linewidth=0)
    axes.axvline(1, **{**FAINT, "alpha": 0.6})
    short = [name if len(name) <= MAX_NAME else f"...{name[3 - MAX_NAME :]}" for name in names]
    axes.set_yticks(range(len(names)), short, parse_math=False)
    axes.set(xscale="log", xlabel="temperature / target", ylim=(len(names) - 0.4, -0.6))
    caption = "Temperature of each parameter tensor at the draws, relative to its target, with 99% "
    caption += "intervals. Squares are off by more than a factor of two, the grey band. The first "
    caption += f"{MAX_PARAMETERS} are shown: posterior.check(loader).parameters has all numbers."
    return _figure("temperature", figure, caption)


def _figure(name: str, figure: Any, caption: str) -> str:
    element = pages.as_element(pages.draw(figure, f"{name}-chart"), f"{name}-chart")
    return pages.figure(element, f"{name}-chart", escape(caption)) + "\n"


def _means(values: Array) -> Array:
    """Means over 50 parts of a run."""
    parts = np.array_split(values, min(50, len(values)))
    return np.array([part.mean() for part in parts])
