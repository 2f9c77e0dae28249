"""Table and picture of the 25 Gaussians in the demo."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.table import Table

VIEW = (-5.2, 5.2)
STAGE_COLOURS = {"explore": "#E69F00", "sample": "#0072B2", "burn-in": "#999999"}
LINE_STYLES = ("--", "-")


class ScoreRow(Protocol):
    """What the table shows of a score."""

    @property
    def modes_covered(self) -> float: ...
    @property
    def in_mode_mass(self) -> float: ...
    @property
    def total_variation(self) -> float: ...


def table(rows: Iterable[tuple[str, str, ScoreRow]]) -> Table:
    """One row for each method, chains and score, and the truth below."""
    shown = Table(title="25 Gaussians", caption="total variation: mode shares against 1/25 each")
    shown.add_column("method")
    shown.add_column("chains")
    for heading in ("modes covered", "mass within 3σ of a mode", "total variation"):
        shown.add_column(heading, justify="right")
    for method, chains, score in rows:
        shown.add_row(
            method,
            chains,
            f"{score.modes_covered:.4g}",
            f"{score.in_mode_mass:.3f}",
            f"{score.total_variation:.3f}",
        )
    shown.add_section()
    shown.add_row("truth", "", "25", f"{1 - np.exp(-4.5):.3f}", "0.000")
    return shown


def picture(
    points: Mapping[str, NDArray],
    schedules: Mapping[str, tuple[float, Mapping[str, NDArray]]],
    steps_shown: int,
) -> Figure:
    """Densities of `points` by title, and below them the first step sizes of `schedules`.

    A schedule is its initial step size and its table.
    """
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    grid = figure.add_gridspec(2, len(points), height_ratios=[1.6, 1])
    for column, (title, draws) in enumerate(points.items()):
        _density(figure.add_subplot(grid[0, column]), title, draws)
    axes = figure.add_subplot(grid[1, :])
    for (name, (lr, ticks)), style in zip(schedules.items(), LINE_STYLES, strict=False):
        _step_sizes(axes, name, style, lr, ticks)
    axes.set_title("schedule", loc="left")
    axes.set(xlabel="step", ylabel="step size")
    axes.set(xlim=(0, steps_shown), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=4)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure, making the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _density(axes: Axes, title: str, draws: NDArray) -> None:
    counts, x_edges, y_edges = np.histogram2d(*draws.T, bins=160, range=[VIEW, VIEW])
    # The darkest shade is the 99.5th percentile of the filled cells: one hot cell hides nothing.
    top = np.percentile(counts[counts > 0], 99.5) if counts.any() else 1.0
    axes.pcolormesh(x_edges, y_edges, counts.T, cmap="Blues", vmax=top, rasterized=True)
    axes.set(title=title, aspect="equal", xticks=range(-4, 5, 2), yticks=range(-4, 5, 2))


def _step_sizes(axes: Axes, name: str, style: str, lr: float, ticks: Mapping[str, NDArray]) -> None:
    for stage, colour in STAGE_COLOURS.items():
        here = ticks["stage"] == stage
        if here.any():
            step_sizes = np.where(here, lr * ticks["lr_scale"], np.nan)
            axes.plot(ticks["step"], step_sizes, style, color=colour, label=f"{name}: {stage}")
