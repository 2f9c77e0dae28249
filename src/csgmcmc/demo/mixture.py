"""25 Gaussians: SGLD against cSGLD, with the paper's step sizes and schedules.

All chains are rows of one tensor. The target has no data set: num_data is 1, the loss is U, and lr
is the paper's step size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.spatial import KDTree

from csgmcmc.arguments import check_count
from csgmcmc.diagnostics import mode_coverage
from csgmcmc.samplers import SGLD
from csgmcmc.schedules import Cyclical, Decreasing, Schedule
from csgmcmc.targets import Mixture25

START_WITHIN = 10.0
RADIUS, MORE_THAN = 0.25, 100  # a mode is covered by more than 100 draws within 0.25 of it
VIEW = (-5.2, 5.2)
STAGE_COLOURS = {"explore": "#E69F00", "sample": "#0072B2", "burn-in": "#999999"}
LINE_STYLES = ("--", "-")

Points = NDArray[np.float32]


@dataclass(frozen=True)
class Method:
    """A schedule and its lr; the sampler is SGLD in both methods."""

    name: str
    lr: float
    schedule: Schedule


@dataclass(frozen=True)
class MixtureDemo:
    """Length, chains and seed of the demo."""

    steps: int = 50_000
    chains: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("steps", self.steps, at_least=1)
        check_count("chains", self.chains, at_least=1)
        check_count("seed", self.seed, at_least=0)
        _ = self.methods  # raises if there are too few steps

    @property
    def methods(self) -> tuple[Method, Method]:
        return (
            Method("SGLD", 0.05, Decreasing(self.steps, gamma=0.55, every=1)),
            Method("cSGLD", 0.09, Cyclical(self.steps, 30, exploration=0.25, every=1)),
        )


@dataclass(frozen=True)
class Score:
    """How well draws match the target."""

    modes_covered: float
    in_mode_mass: float
    total_variation: float


def show_mixture(demo: MixtureDemo, out: Path, console: Console) -> None:
    """Run both methods, print a table, and write a picture into the folder `out`."""
    draws: dict[str, Points] = {}
    for method in demo.methods:
        with console.status(f"{method.name}: {demo.steps} steps of {demo.chains} chains"):
            draws[method.name] = sample(demo, method)
    rows = [
        (name, chains, score)
        for name, points in draws.items()
        for chains, score in scores(points).items()
    ]
    console.print(table(rows))
    pooled = {f"{name}, {demo.chains} chains": p.reshape(-1, 2) for name, p in draws.items()}
    count = max(map(len, pooled.values()))
    exact = Mixture25().sample(count, torch.Generator().manual_seed(demo.seed)).numpy()
    figure = picture({"target": exact, **pooled}, demo)
    path = out / "mixture.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    console.print(f"picture: {path}")


def sample(demo: MixtureDemo, method: Method) -> Points:
    """Run all chains of a method; return its draws, of shape (chains, draws, 2)."""
    target = Mixture25()
    points = torch.empty(demo.chains, 2)
    starts = torch.Generator().manual_seed(demo.seed)
    points.uniform_(-START_WITHIN, START_WITHIN, generator=starts)
    sampler = SGLD([points], method.lr, num_data=1, seed=demo.seed)
    draws: list[torch.Tensor] = []
    for step in range(demo.steps):
        tick = method.schedule.apply(sampler, step)
        points.grad = target.gradient(points)
        sampler.step()
        if tick.collect:
            draws.append(points.clone())
    return torch.stack(draws, dim=1).numpy()


def scores(draws: Points) -> dict[str, Score]:
    """The mean score of the single chains, and the score of the pooled chains."""
    single = [measure(chain) for chain in draws]
    mean = {
        name: float(np.mean([getattr(score, name) for score in single]))
        for name in ("modes_covered", "in_mode_mass", "total_variation")
    }
    return {
        "1 chain (mean)": Score(**mean),
        f"{len(draws)} chains pooled": measure(draws.reshape(-1, 2)),
    }


def measure(points: Points) -> Score:
    """Score draws against the known modes."""
    target = Mixture25()
    modes = target.means.numpy()
    distances, nearest = KDTree(modes).query(points)
    shares = np.bincount(nearest, minlength=len(modes)) / len(points)
    return Score(
        modes_covered=mode_coverage(points, modes, RADIUS, MORE_THAN),
        in_mode_mass=float((distances <= 3 * target.std).mean()),
        total_variation=float(np.abs(shares - target.weights.numpy()).sum() / 2),
    )


def table(rows: Iterable[tuple[str, str, Score]]) -> Table:
    """One row per method and number of chains, and the exact values below."""
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


def picture(points: Mapping[str, Points], demo: MixtureDemo) -> Figure:
    """Densities of `points` by title, and below them the step sizes of the first fifth of a run."""
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    grid = figure.add_gridspec(2, len(points), height_ratios=[1.6, 1])
    for column, (title, draws) in enumerate(points.items()):
        _density(figure.add_subplot(grid[0, column]), title, draws)
    axes = figure.add_subplot(grid[1, :])
    for method, style in zip(demo.methods, LINE_STYLES, strict=True):
        _step_sizes(axes, method, style)
    axes.set_title("schedule", loc="left")
    axes.set(xlabel="step", ylabel="step size")
    axes.set(xlim=(0, max(demo.steps // 5, 1)), ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=4)
    return figure


def _density(axes: Axes, title: str, draws: Points) -> None:
    counts, x_edges, y_edges = np.histogram2d(*draws.T, bins=160, range=[VIEW, VIEW])
    # The darkest shade is the 99.5th percentile of the filled cells, so that outliers hide nothing.
    top = np.percentile(counts[counts > 0], 99.5) if counts.any() else 1.0
    axes.pcolormesh(x_edges, y_edges, counts.T, cmap="Blues", vmax=top, rasterized=True)
    axes.set(title=title, aspect="equal", xticks=range(-4, 5, 2), yticks=range(-4, 5, 2))


def _step_sizes(axes: Axes, method: Method, style: str) -> None:
    ticks = method.schedule.table()
    for stage, colour in STAGE_COLOURS.items():
        here = ticks["stage"] == stage
        if here.any():
            step_sizes = np.where(here, method.lr * ticks["lr_scale"], np.nan)
            label = f"{method.name}: {stage}"
            axes.plot(ticks["step"], step_sizes, style, color=colour, label=label)
