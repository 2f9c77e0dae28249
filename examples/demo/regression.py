"""Regression with a gap in the data: SGDM, a deep ensemble and cSGHMC beside the exact posterior.

All have the same data, network, prior and noise. The posterior is a density over the weights, with
gradients of all data: num_data is 1, and the loss is U. Its exact predictions are from Hamiltonian
Monte Carlo, see `hmc.py`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import Tensor

from csgmcmc.samplers import SGHMC
from csgmcmc.schedules import Cyclical
from examples.demo.density import run_chains
from examples.demo.hmc import HMCRun, hmc
from examples.demo.pictures import (
    BLUE,
    GREY,
    ORANGE,
    VERMILION,
    new_figure,
    open_frame,
    save_picture,
)
from paper.targets import Target

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISE = 0.1  # standard deviation, known to all methods
GAP = (-0.3, 0.3)
VIEW = (-1.5, 1.5)
HIDDEN = 20
SLOPE, SCALE = 4.0, 1.5  # so that N(0, 1) is a sensible prior of all weights
NETWORKS = 5  # of the ensemble, and chains of cSGHMC
LR, MOMENTUM = 2e-4, 0.95
LEAPFROGS = 40
TITLES = {
    "SGDM": "SGDM, one network",
    "ensemble": f"ensemble of {NETWORKS}",
    "cSGHMC": "cSGHMC",
    "exact (HMC)": "exact posterior (HMC)",
}
COLOURS = {"SGDM": ORANGE, "ensemble": VERMILION, "cSGHMC": BLUE, "exact (HMC)": GREY}


@dataclass(frozen=True)
class RegressionDemo:
    """Length and seed of the demo."""

    steps: int = 8000
    hmc_chains: int = 16
    hmc_paths: int = 250
    seed: int = 0

    def __post_init__(self) -> None:
        self.schedule(temperature=1.0)  # raises if there are too few steps

    def schedule(self, temperature: float) -> Cyclical:
        """One decay of the learning rate to optimise, four cycles to sample."""
        if temperature == 0:
            return Cyclical(self.steps, 1, draws_per_cycle=1)
        return Cyclical(self.steps, 4, exploration=0.3, draws_per_cycle=50)


class NetworkPosterior(Target):
    """The posterior of f(x) = c + SCALE / sqrt(HIDDEN) * sum of v tanh(SLOPE (w x + b)).

    The prior is N(0, 1) of all weights (w, b, v, c), and y = f(x) + N(0, NOISE^2).
    """

    dimension = 3 * HIDDEN + 1

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def outputs(self, points: Tensor, inputs: Tensor) -> Tensor:
        """What is predicted for `inputs`, by the network of each row of `points`."""
        hidden, last, constant = self._layers(points, inputs)
        return (hidden @ last.unsqueeze(-1)).squeeze(-1) + constant

    def potential(self, points: Tensor) -> Tensor:
        return self.potential_and_gradient(points)[0]

    def gradient(self, points: Tensor) -> Tensor:
        return self.potential_and_gradient(points)[1]

    def potential_and_gradient(self, points: Tensor) -> tuple[Tensor, Tensor]:
        hidden, last, constant = self._layers(points, self.inputs)
        residuals = (hidden @ last.unsqueeze(-1)).squeeze(-1) + constant - self.targets
        errors = residuals / NOISE**2
        potential = (points.square().sum(-1) + (residuals * errors).sum(-1)) / 2
        inside = SLOPE * (1 - hidden.square()) * (errors.unsqueeze(-1) * last.unsqueeze(-2))
        of_last = (errors.unsqueeze(-2) @ hidden).squeeze(-2) * (SCALE / HIDDEN**0.5)
        parts = (self.inputs @ inside, inside.sum(-2), of_last, errors.sum(-1, keepdim=True))
        return potential, points + torch.cat(parts, dim=-1)

    @staticmethod
    def _layers(points: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weights, biases, last, constant = points.split([HIDDEN, HIDDEN, HIDDEN, 1], dim=-1)
        sums = inputs.unsqueeze(-1) * weights.unsqueeze(-2) + biases.unsqueeze(-2)
        return torch.tanh(SLOPE * sums), last * (SCALE / HIDDEN**0.5), constant


class Band(NamedTuple):
    """Mean and standard deviation of y, on the grid of inputs."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]


def make_data() -> tuple[Tensor, Tensor]:
    """40 points of a sine with noise, none of them in the gap; always the same."""
    generator = torch.Generator().manual_seed(0)
    left, right = torch.rand(2, 20, generator=generator, dtype=torch.float64)
    inputs = torch.cat([-1 + (GAP[0] + 1) * left, GAP[1] + (1 - GAP[1]) * right])
    noise = NOISE * torch.randn(len(inputs), generator=generator, dtype=torch.float64)
    return inputs, 0.8 * torch.sin(4 * inputs) + noise


def make_grid() -> Tensor:
    """The inputs that are predicted."""
    return torch.linspace(*VIEW, 151, dtype=torch.float64)


def optimise_or_sample(demo: RegressionDemo, target: Target, temperature: float) -> Tensor:
    """Networks from as many starts: the last ones at temperature 0, draws of cycles otherwise."""
    points = starts(NETWORKS, demo.seed)
    sampler = SGHMC(
        [points], LR, num_data=1, momentum=MOMENTUM, temperature=temperature, seed=demo.seed
    )
    return run_chains(target, points, sampler, demo.schedule(temperature)).flatten(0, 1)


def starts(count: int, seed: int) -> Tensor:
    """Networks from the prior."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, NetworkPosterior.dimension, generator=generator, dtype=torch.float64)


def band(target: NetworkPosterior, networks: Tensor) -> Band:
    """What the average of `networks` predicts."""
    outputs = target.outputs(networks, make_grid())
    variance = outputs.var(0, correction=0) + NOISE**2
    return Band(outputs.mean(0).numpy(), variance.sqrt().numpy())


def show_regression(demo: RegressionDemo, out: Path, console: Console) -> None:
    """Run all methods, print how near each is to the exact posterior, and write a picture."""
    target = NetworkPosterior(*make_data())
    with console.status(f"SGDM, ensemble: {demo.steps} steps"):
        optimised = optimise_or_sample(demo, target, temperature=0.0)
    with console.status(f"cSGHMC: {demo.steps} steps of {NETWORKS} chains"):
        sampled = optimise_or_sample(demo, target, temperature=1.0)
    with console.status(f"exact posterior: HMC, {demo.hmc_chains} chains"):
        exact = run_hmc(demo, target).draws.flatten(0, 1)
    networks = (optimised[:1], optimised, sampled, exact)
    bands = {name: band(target, each) for name, each in zip(COLOURS, networks, strict=True)}
    console.print(table(bands))
    save_picture(picture(bands, target), out / "regression.png", console)


def run_hmc(demo: RegressionDemo, target: Target) -> HMCRun:
    """The exact posterior, by Hamiltonian Monte Carlo."""
    first, paths = starts(demo.hmc_chains, demo.seed + 1), demo.hmc_paths
    return hmc(target, first, leapfrogs=LEAPFROGS, warm_up=paths, draws=paths, seed=demo.seed)


def in_gap() -> NDArray[np.bool_]:
    """Which inputs of the grid lie in the gap."""
    grid = make_grid().numpy()
    return (grid > GAP[0]) & (grid < GAP[1])


def table(bands: dict[str, Band]) -> Table:
    """Mean and standard deviation of y in the gap, compared with the exact ones."""
    shown = Table(
        title="regression, predictions in the gap of the data",
        caption="σ: predicted standard deviation of y; noise alone has 0.1",
    )
    shown.add_column("method")
    for heading in ("mean σ", "σ / exact σ", "|mean - exact mean|"):
        shown.add_column(heading, justify="right")
    exact, here = bands["exact (HMC)"], in_gap()
    for name, each in bands.items():
        shown.add_row(
            name,
            f"{each.std[here].mean():.2f}",
            f"{(each.std / exact.std)[here].mean():.2f}",
            f"{np.abs(each.mean - exact.mean)[here].mean():.2f}",
        )
    return shown


def picture(bands: dict[str, Band], target: NetworkPosterior) -> "Figure":
    """A panel for each method: the data, the mean, and the band of 95%."""
    figure = new_figure(
        11,
        3.4,
        "Line: mean. Band: 95% of new observations, noise included. Shaded: no data. All methods "
        "have the same network, prior and noise.",
    )
    grid = make_grid().numpy()
    panels = figure.subplots(1, len(bands), sharex=True, sharey=True)
    for axes, (name, each) in zip(panels, bands.items(), strict=True):
        axes.axvspan(*GAP, color="#EEEEEE", linewidth=0)
        low, high = each.mean - 1.96 * each.std, each.mean + 1.96 * each.std
        axes.fill_between(grid, low, high, color=COLOURS[name], alpha=0.35, linewidth=0)
        axes.plot(grid, each.mean, color=COLOURS[name], linewidth=2)
        axes.plot(target.inputs, target.targets, "o", color="black", markersize=3)
        axes.set_title(TITLES[name], fontweight="bold")
        axes.set(xlim=VIEW, ylim=(-2.2, 2.2))
        open_frame(axes)
    panels[0].set(ylabel="y")
    return figure
