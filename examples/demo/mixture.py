"""25 Gaussians: SGLD and cSGLD with the paper's settings, and cSGLD that explores hot and cools.

All chains are rows of one tensor. The target has no data set: num_data is 1, the loss is U, and lr
is the paper's step size.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.spatial import KDTree

from csgmcmc.samplers import SGLD
from csgmcmc.schedules import Cyclical, Decreasing, Keep, Schedule
from examples.demo.density import run_chains
from examples.demo.pictures import BLUE, GREY, ORANGE, new_figure, open_frame, save_picture
from paper.targets import Mixture25

if TYPE_CHECKING:  # an extra: settings are checked without it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

START_WITHIN = 10.0
RADIUS, MORE_THAN = 0.25, 100  # a mode is covered by more than 100 draws within 0.25 of it
VIEW = (-5.2, 5.2)
SHOWN_PART = 25  # of a run, in the picture of the schedules: a cycle of the paper and a bit

Points = NDArray[np.float32]


@dataclass(frozen=True)
class Method:
    """A schedule and its lr; the sampler is SGLD in all methods."""

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
        _ = self.methods  # raises if there are too few steps

    @property
    def methods(self) -> tuple[Method, Method, Method]:
        """SGLD and cSGLD with the paper's step sizes, and cSGLD that begins hot and cools."""
        # Many short cycles: each is a new visit to some mode, and masses are counted in visits.
        cooling = Cyclical(
            self.steps,
            max(1, self.steps // 100),
            exploration=0.7,
            keep=Keep(every=1),
            exploration_temperature=10,
            anneal=True,
        )
        return (
            Method("SGLD", 0.05, Decreasing(self.steps, gamma=0.55, keep=Keep(every=1))),
            Method("cSGLD", 0.09, Cyclical(self.steps, 30, exploration=0.25, keep=Keep(every=1))),
            # Below 0.06, where steps in a mode of variance 0.03 become unstable.
            Method("cSGLD, cooling", 0.055, cooling),
        )


@dataclass(frozen=True)
class Score:
    """How well draws match the target."""

    modes_covered: float
    in_mode_mass: float
    total_variation: float


def show_mixture(demo: MixtureDemo, out: Path, console: Console) -> None:
    """Run all methods, print a table, and write a picture into the folder `out`."""
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
    pooled = {name: points.reshape(-1, 2) for name, points in draws.items()}
    save_picture(picture(pooled, demo), out / "mixture.png", console)


def sample(demo: MixtureDemo, method: Method) -> Points:
    """Run all chains of a method; return its draws, of shape (chains, draws, 2)."""
    points = torch.empty(demo.chains, 2)
    starts = torch.Generator().manual_seed(demo.seed)
    points.uniform_(-START_WITHIN, START_WITHIN, generator=starts)
    sampler = SGLD([points], method.lr, num_data=1, seed=demo.seed)
    return run_chains(Mixture25(), points, sampler, method.schedule).numpy()


def scores(draws: Points) -> dict[str, Score]:
    """The mean score of the single chains, and the score of the pooled chains."""
    single = [measure(chain) for chain in draws]
    mean = {
        name: float(np.mean([getattr(score, name) for score in single]))
        for name in ("modes_covered", "in_mode_mass", "total_variation")
    }
    return {
        "1 (mean)": Score(**mean),
        f"{len(draws)} (pooled)": measure(draws.reshape(-1, 2)),
    }


def measure(points: Points) -> Score:
    """Score draws against the known modes."""
    target = Mixture25()
    modes = target.means.numpy()
    distances, nearest = KDTree(modes).query(points)
    shares = np.bincount(nearest, minlength=len(modes)) / len(points)
    near = np.bincount(nearest[distances <= RADIUS], minlength=len(modes))
    return Score(
        modes_covered=int((near > MORE_THAN).sum()),
        in_mode_mass=float((distances <= 3 * target.std).mean()),
        total_variation=float(np.abs(shares - target.weights.numpy()).sum() / 2),
    )


def table(rows: Iterable[tuple[str, str, Score]]) -> Table:
    """One row per method and number of chains, and the exact values below."""
    shown = Table(
        title="25 Gaussians",
        caption="mass within 3σ: of a mode. total variation: masses of modes against 1/25 each",
    )
    shown.add_column("method")
    shown.add_column("chains")
    for heading in ("modes covered", "mass within 3σ", "total variation"):
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


def picture(points: Mapping[str, Points], demo: MixtureDemo) -> "Figure":
    """Densities of `points` by method, and below them step sizes and temperatures."""
    shown = demo.steps // SHOWN_PART
    figure = new_figure(
        11,
        6,
        f"Above: draws of {demo.chains} chains of {demo.steps:,} steps; modes covered, and total "
        f"variation between their masses and 1/25 each.\nBelow: the schedules, 1/{SHOWN_PART} "
        "of a run; thick where draws are kept.",
    )
    grid = figure.add_gridspec(2, 1, height_ratios=[1.7, 1])
    above = grid[0].subgridspec(1, len(points) + 1)
    count = max(map(len, points.values()))
    exact = Mixture25().sample(count, torch.Generator().manual_seed(demo.seed)).numpy()
    for column, (title, draws) in enumerate({"target": exact, **points}.items()):
        _density(figure.add_subplot(above[column]), title, draws)
    below = grid[1].subgridspec(1, 2)
    for column, (label, of_ticks) in enumerate(
        {"step size": "lr_scale", "temperature": "temperature_scale"}.items()
    ):
        axes = figure.add_subplot(below[column])
        for method, colour in zip(demo.methods, (GREY, ORANGE, BLUE), strict=True):
            ticks = {name: values[:shown] for name, values in method.schedule.table().items()}
            values = ticks[of_ticks] * (method.lr if of_ticks == "lr_scale" else 1)
            kept = np.where(ticks["collect"], values, np.nan)
            axes.plot(ticks["step"], values, color=colour, linewidth=0.8)
            axes.plot(ticks["step"], kept, color=colour, linewidth=2.5, label=method.name)
        axes.set(xlabel="step", ylabel=label, xlim=(0, max(shown, 1)), ylim=(0, None))
        open_frame(axes)
    place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": len(points)}
    figure.axes[-1].legend(frameon=False, **place)
    return figure


def _density(axes: "Axes", title: str, draws: Points) -> None:
    score = measure(draws)
    counts, x_edges, y_edges = np.histogram2d(*draws.T, bins=120, range=[VIEW, VIEW])
    # The darkest shade is the 99.5th percentile of the filled cells, so that outliers hide nothing.
    top = np.percentile(counts[counts > 0], 99.5) if counts.any() else 1.0
    axes.pcolormesh(x_edges, y_edges, counts.T, cmap="Blues", vmax=top, rasterized=True)
    axes.set(aspect="equal", xticks=range(-4, 5, 2), yticks=range(-4, 5, 2))
    axes.set_title(title, fontweight="bold")
    axes.set_xlabel(f"{score.modes_covered:g} modes, total variation {score.total_variation:.2f}")
