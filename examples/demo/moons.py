"""Two moons: where SGDM is certain, and where cSGHMC is, on a plane wider than the data.

Both have the same network, data, prior and number of steps. SGDM takes the one network at the end;
cSGHMC samples the posterior, at temperature 1, and averages.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.spatial import KDTree
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc.loop import Chain
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import SGHMC
from csgmcmc.schedules import Cyclical
from examples.demo.pictures import VERMILION, new_figure, save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS, NOISE = 100, 0.15
WIDTH = 50
WEIGHT_DECAY = 1e-2  # with 100 points: the prior N(0, 1) of all weights
LR, MOMENTUM = 0.05, 0.9
VIEW = (-4.5, 5.5, -4.0, 4.5)  # left, right, bottom, top
PIXELS = 120
FAR = 2.0  # from all data
CERTAIN = 0.95
TITLES = {
    "SGDM": "SGDM: certain almost everywhere",
    "cSGHMC": "cSGHMC: doubt grows away from the data",
}

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MoonsDemo:
    """Length and seed of the demo."""

    steps: int = 4000
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self.schedules  # raises if there are too few steps

    @property
    def schedules(self) -> dict[str, Cyclical]:
        """One decay of the learning rate for SGDM, four cycles for cSGHMC."""
        return {
            "SGDM": Cyclical(self.steps, 1, draws_per_cycle=1),
            "cSGHMC": Cyclical(self.steps, 4, exploration=0.3, draws_per_cycle=50),
        }


class Moons(NamedTuple):
    """Points of shape (n, 2), and their classes 0 and 1."""

    points: Array
    classes: NDArray[np.int64]


class Plane(NamedTuple):
    """Points of a grid wider than the data, (pixels * pixels, 2), and which are far from it."""

    points: Array
    far: NDArray[np.bool_]


def make_moons() -> Moons:
    """The data; always the same."""
    from sklearn import datasets  # noqa: PLC0415  (takes a second to import)

    points, classes = datasets.make_moons(POINTS, noise=NOISE, random_state=0)
    return Moons(np.asarray(points), np.asarray(classes))


def axes_of_plane() -> tuple[Array, Array]:
    """The coordinates of its columns and of its rows."""
    left, right, bottom, top = VIEW
    return np.linspace(left, right, PIXELS), np.linspace(bottom, top, PIXELS)


def make_plane(moons: Moons) -> Plane:
    """The plane that is predicted."""
    points = np.stack(np.meshgrid(*axes_of_plane()), axis=-1).reshape(-1, 2)
    return Plane(points, KDTree(moons.points).query(points)[0] > FAR)


def sample(demo: MoonsDemo, method: str, moons: Moons) -> Posterior:
    """Run SGDM or cSGHMC, and return the posterior of its draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(demo.seed)
        hidden = [nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        model = nn.Sequential(*hidden, nn.Linear(WIDTH, 2))
    sampler = SGHMC(
        model.parameters(),
        LR,
        num_data=POINTS,
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
        temperature=1.0 if method == "cSGHMC" else 0.0,
        seed=demo.seed,
    )
    batch = torch.as_tensor(moons.points, dtype=torch.float32), torch.as_tensor(moons.classes)
    schedule = demo.schedules[method]
    chain = Chain(model, cross_entropy, [batch], sampler, schedule, progress=False, watch=False)
    return Posterior(model, chain.run(), progress=False)


def predict(posterior: Posterior, points: Array) -> Array:
    """The probability of class 1."""
    predictive = posterior.predict(torch.as_tensor(points, dtype=torch.float32))
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (moons are classes)
    return predictive.probs_numpy()[:, 1]


def show_moons(demo: MoonsDemo, out: Path, console: Console) -> None:
    """Run both methods, print how certain each is, and write a picture."""
    moons = make_moons()
    plane = make_plane(moons)
    maps: dict[str, Array] = {}
    shown = Table(
        title="two moons",
        caption=f"certain: one class is above {CERTAIN:.0%}. far away: {FAR:g} from all data",
    )
    shown.add_column("method")
    for heading in ("training error %", "certain at the data %", "certain far away %"):
        shown.add_column(heading, justify="right")
    for method in demo.schedules:
        with console.status(f"{method}: {demo.steps} steps"):
            posterior = sample(demo, method, moons)
            maps[method] = predict(posterior, plane.points)
            at_data = predict(posterior, moons.points)
        error = 100 * np.mean((at_data > 0.5) != moons.classes)
        near, far = (certain_share(each) for each in (at_data, maps[method][plane.far]))
        shown.add_row(method, f"{error:.0f}", f"{100 * near:.0f}", f"{100 * far:.0f}")
    console.print(shown)
    save_picture(picture(maps, moons), out / "moons.png", console)


def certain_share(probabilities: Array) -> float:
    """The share of points at which one of both classes is certain."""
    return float(np.mean(np.maximum(probabilities, 1 - probabilities) > CERTAIN))


def picture(maps: dict[str, Array], moons: Moons) -> "Figure":
    """A map for each method: how probable the more probable class is."""
    figure = new_figure(
        10,
        4.8,
        "Probability of the more probable class: dark is a guess, bright is certain. "
        "Line: where both are equal.\n"
        "In some directions the average of ReLU networks stays certain.",
    )
    across, up = axes_of_plane()
    panels = figure.subplots(1, len(maps), sharex=True, sharey=True)
    image = None
    for axes, (method, probabilities) in zip(panels, maps.items(), strict=True):
        grid = probabilities.reshape(PIXELS, PIXELS)
        shades = np.linspace(0.5, 1, 11)
        image = axes.contourf(across, up, np.maximum(grid, 1 - grid), shades, cmap="cividis")
        axes.contour(across, up, grid, levels=[0.5], colors="white", linewidths=1)
        for each, (marker, colour) in enumerate((("o", "white"), ("^", VERMILION))):
            points = moons.points[moons.classes == each]
            style = {"markersize": 4, "markeredgecolor": "black", "markeredgewidth": 0.5}
            axes.plot(*points.T, marker, color=colour, **style)
        axes.set_title(TITLES[method], fontweight="bold")
        axes.set(xticks=[], yticks=[], aspect="equal")
    assert image is not None  # noqa: S101  (there are two maps)
    figure.colorbar(image, ax=panels, label="certainty")
    return figure
