"""The figures of a run's page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from csgmcmc.draws import Draw
from csgmcmc.pages import COLOURS, INK, STYLE, new_figure
from csgmcmc.report.findings import Findings
from csgmcmc.report.traces import Array, Trace

if TYPE_CHECKING:  # an extra
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHART_STYLE: Any = {
    **STYLE,
    "font.size": 9.5,
    "legend.fontsize": 9,
}
WIDE, NARROW = 6.2, 4.5  # inches
BLUE, ORANGE, GREEN, VERMILION = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[5]
FAINT = {"color": INK, "alpha": 0.2, "linewidth": 0.8}
GROUPS = {"right": (GREEN, "-"), "wrong": (VERMILION, "--"), "other": (BLUE, "-.")}
MOST_MARKS = 300  # of draws
MOST_NAMES = 40  # of parameters
LONGEST_NAME = 26  # letters
LARGEST = 1e30  # number on an axis
SMOOTHED = 50  # windows of a run whose mean loss is drawn
FACTOR = 2  # between a temperature and its target, beyond which it is judged


def trace_chart(traces: Sequence[Trace], draws: Sequence[Draw]) -> "Figure":
    """Loss, lr and temperature by step; draws are marked, and cycles divided by lines."""
    traces = [_drawable_trace(trace) for trace in traces]
    has_loss = any(trace.loss is not None for trace in traces)
    heights = [2, 1, 1] if has_loss else [1, 1]
    figure = new_figure(WIDE, 1.2 + 1.0 * sum(heights))
    panels = list(figure.subplots(len(heights), sharex=True, height_ratios=heights))
    starts = _cycle_starts(traces)
    for axes in panels:
        for start in starts:
            axes.axvline(start, **FAINT)
        axes.margins(x=0.01)
    if has_loss:
        _draw_losses(panels[0], traces)
    for axes, name in zip(panels[-2:], ("lr", "temperature"), strict=True):
        for trace, colour in zip(traces, _colours(len(traces)), strict=True):
            axes.plot(trace.step, getattr(trace, name), color=colour, linewidth=1.2)
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)
    _mark_draws(panels[-2], traces, draws)
    panels[-1].set_xlabel("step")
    return figure


def _draw_losses(axes: "Axes", traces: Sequence[Trace]) -> None:
    for trace, colour in zip(traces, _colours(len(traces)), strict=True):
        if trace.loss is None:
            continue
        axes.plot(trace.step, trace.loss, color=colour, alpha=0.3, linewidth=0.7)
        label = f"chain {trace.chain_id}"
        axes.plot(*_smoothed(trace.step, trace.loss), color=colour, linewidth=1.6, label=label)
    losses = np.concatenate([trace.loss for trace in traces if trace.loss is not None])
    if len(losses) and (losses[np.isfinite(losses)] > 0).all():
        axes.set_yscale("log")
    axes.set_ylabel("loss")
    if 1 < len(traces) <= 6:
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def _mark_draws(axes: "Axes", traces: Sequence[Trace], draws: Sequence[Draw]) -> None:
    """A dot on the curve of lr at each draw, or at some of them."""
    for trace in traces:
        steps = np.array([draw.step for draw in draws if draw.chain_id == trace.chain_id])
        if len(steps) and len(trace.step):
            steps = steps[:: -(-len(steps) // MOST_MARKS)]
            at = np.interp(steps, trace.step, trace.lr)
            axes.plot(steps, at, "o", color=VERMILION, markersize=3.5, clip_on=False, zorder=3)


def scores_chart(findings: Findings) -> "Figure":
    """NLL and error of the average of the first draws, beside those of each draw alone."""
    figure = new_figure(NARROW, 4.2)
    panels = figure.subplots(2, sharex=True)
    factor = 100 if findings.error_name == "error" else 1
    numbers = np.arange(1, len(findings.nll_by_draws) + 1)
    parts = (
        ("NLL", findings.nll_by_draws, findings.nll_of_draws, 1),
        (_error_label(findings), findings.error_by_draws, findings.error_of_draws, factor),
    )
    for axes, (label, averages, alone, scale) in zip(panels, parts, strict=True):
        axes.plot(numbers, scale * _drawable(alone), ".", color=ORANGE, markersize=4, label="alone")
        average = scale * _drawable(averages)
        marker = "o" if len(numbers) <= 40 else None
        axes.plot(numbers, average, color=BLUE, marker=marker, markersize=3.5, label="average")
        axes.set_ylabel(label)
        _whole_numbers(axes)
    panels[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    panels[-1].set_xlabel("number of draws")
    return figure


def cycles_chart(findings: Findings) -> "Figure":
    """NLL, error and weight of each cycle, beside the average of all draws."""
    figure = new_figure(NARROW, 5.2)
    panels = figure.subplots(3, sharex=True)
    factor = 100 if findings.error_name == "error" else 1
    places = np.arange(1, len(findings.cycles) + 1)
    parts = (
        ("NLL", "nll", findings.nll_by_draws, 1),
        (_error_label(findings), "error", findings.error_by_draws, factor),
    )
    for axes, (label, name, averages, scale) in zip(panels, parts, strict=False):
        values = scale * _drawable([cycle[name] for cycle in findings.cycles])
        axes.plot(places, values, "s", color=ORANGE, markersize=4.5, label="one cycle")
        axes.axhline(scale * _drawable(averages)[-1], color=BLUE, linestyle="--", label="all draws")
        axes.set_ylabel(label)
    panels[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    weights = _drawable([cycle["weight"] for cycle in findings.cycles])
    stacking = [cycle["stacking"] for cycle in findings.cycles]
    panels[2].bar(places, weights, width=0.7, color=BLUE, alpha=0.6, label="weight")
    if None not in stacking:
        weights = _drawable(stacking)
        panels[2].plot(places, weights, "D", color=VERMILION, markersize=4, label="by stacking")
    panels[2].legend(loc="lower center", bbox_to_anchor=(0.5, 0.97), ncols=2)
    panels[2].set(ylabel="weight", xlabel="cycle")
    _whole_numbers(panels[2])
    return figure


def calibration_chart(findings: Findings) -> "Figure":
    """Accuracy against confidence, with 99% intervals; for numbers coverage against level."""
    figure = new_figure(NARROW, 3.8)
    axes = figure.subplots()
    confidence, accuracy = np.clip(findings.confidence, 0, 1), np.clip(findings.accuracy, 0, 1)
    count = np.maximum(findings.count, 1)
    hits = np.round(accuracy * count)
    low = stats.beta.ppf(0.005, hits, count - hits + 1)
    high = stats.beta.ppf(0.995, hits + 1, count - hits)
    low, high = np.where(hits > 0, low, 0.0), np.where(hits < count, high, 1.0)
    axes.plot([0, 1], [0, 1], **{**FAINT, "alpha": 0.5, "linestyle": "--"})
    axes.vlines(confidence, low, high, color=BLUE, alpha=0.5, linewidth=1.2)
    share = count / count.max() if findings.error_name == "error" else np.full(len(count), 0.2)
    axes.scatter(confidence, accuracy, s=12 + 90 * share, color=BLUE, alpha=0.9)
    classes = findings.error_name == "error"
    smallest = min([*confidence, *low]) if len(confidence) else 0.0
    start = np.floor(10 * smallest) / 10 if np.isfinite(smallest) else 0.0
    axes.set(
        xlabel="confidence" if classes else "level of the interval",
        ylabel="accuracy" if classes else "share of targets inside",
        xlim=(start - 0.02, 1.02),
        ylim=(start - 0.02, 1.02),
    )
    return figure


def entropy_chart(findings: Findings) -> "Figure":
    """Share of points with at most an entropy: of right and wrong ones, and of other data."""
    figure = new_figure(NARROW, 3.8)
    axes = figure.subplots()
    entropies = _drawable(findings.entropies)
    for name, (colour, line) in GROUPS.items():
        if name in findings.share_up_to:
            shares = _drawable(findings.share_up_to[name])
            axes.plot(entropies, shares, color=colour, linestyle=line, label=name)
    axes.set(xlabel="entropy, nats", ylabel="share up to it", ylim=(0, 1.02))
    axes.margins(x=0.01)
    if axes.lines:
        axes.legend(loc="lower right")
    return figure


def temperature_chart(findings: Findings) -> "Figure | None":
    """Temperature of each parameter relative to its target; None if none was measured."""
    known = {
        name: row
        for name, row in findings.parameters.items()
        if None not in (row["value"], row["low"], row["high"], row["target"]) and row["target"] > 0
    }
    names = list(known)[:MOST_NAMES]
    if not names:
        return None
    figure = new_figure(NARROW, 1.1 + 0.24 * len(names))
    axes = figure.subplots()
    least, most = 1e-3, 1e3  # an estimate may be negative, or far off
    for place, name in enumerate(names):
        row = known[name]
        low, value, high = (
            np.clip(np.nan_to_num(row[key] / row["target"]), least, most)
            for key in ("low", "value", "high")
        )
        far = high < 1 / FACTOR or low > FACTOR
        colour, marker = (VERMILION, "s") if far else (GREEN, "o")
        axes.hlines(place, low, high, color=colour, linewidth=1.6)
        axes.plot(value, place, marker, color=colour, markersize=4.5)
    axes.axvspan(1 / FACTOR, FACTOR, color=INK, alpha=0.08, linewidth=0)
    axes.axvline(1, **{**FAINT, "alpha": 0.6})
    axes.set_xscale("log")
    labels = [_plain_name(name) for name in names]
    axes.set_yticks(range(len(names)), labels, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("temperature / target")
    return figure


def _drawable(values: Sequence[Any] | Array) -> Array:
    """Numbers that an axis can hold, nan for others."""
    numbers = np.asarray(values, dtype=float)
    return np.where(np.abs(numbers) < LARGEST, numbers, np.nan)


def _drawable_trace(trace: Trace) -> Trace:
    columns = {
        name: getattr(trace, name) for name in ("step", "cycle", "lr", "temperature", "loss")
    }
    known = {name: _drawable(each) for name, each in columns.items() if each is not None}
    return replace(trace, **known)


def _plain_name(name: str) -> str:
    """A name that every font has, not too long."""
    name = name.encode("ascii", "backslashreplace").decode()
    name = "".join(sign if sign.isprintable() else "?" for sign in name)
    return name if len(name) <= LONGEST_NAME else f"...{name[-LONGEST_NAME + 3 :]}"


def _error_label(findings: Findings) -> str:
    return "error, %" if findings.error_name == "error" else findings.error_name


def _colours(count: int) -> list[str]:
    return [COLOURS[number % len(COLOURS)] for number in range(count)]


def _cycle_starts(traces: Sequence[Trace]) -> Array:
    """Steps at which a cycle begins, but for the first."""
    if not traces or not len(traces[0].step):
        return np.array([])
    changes = np.flatnonzero(np.diff(traces[0].cycle)) + 1
    return traces[0].step[changes] if len(changes) <= 200 else np.array([])


def _smoothed(step: Array, loss: Array) -> tuple[Array, Array]:
    """Means over parts of the run."""
    parts = max(1, min(SMOOTHED, len(step)))
    return (
        np.array([part.mean() for part in np.array_split(step, parts) if len(part)]),
        np.array([part.mean() for part in np.array_split(loss, parts) if len(part)]),
    )


def _whole_numbers(axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
