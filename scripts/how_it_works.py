"""Draws the picture of docs/how-it-works.md: one step of a chain, from its batch to the check.

    .venv/bin/python scripts/how_it_works.py

A line a + b x with Gaussian noise has two weights, so that all of it can be seen. Everything drawn
is read off one run, at the step that gives the first draw of its third cycle.
"""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import csgmcmc
from csgmcmc.posterior import Gaussian

mpl.use("Agg")
import matplotlib.pyplot as plt

PATH = Path(__file__).parents[1] / "docs" / "images" / "how-it-works.png"
GREY, ORANGE, BLUE, VERMILION, GREEN = "#777777", "#E69F00", "#0072B2", "#D55E00", "#009E73"
N, BATCH, NOISE, LR = 40, 8, 0.4, 0.06
TRUE = (0.5, 1.2)
SCHEDULE = csgmcmc.Cyclical(steps=4000, cycles=4, exploration=0.3, draws_per_cycle=200)


class Line(nn.Module):
    """a + b x."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weights[0] + self.weights[1] * x


def loss(mean: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (mean - y).square().mean() / (2 * NOISE**2)


def points(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(count, generator=generator) - 1
    noise = NOISE * torch.randn(count, generator=generator)
    return TensorDataset(x, TRUE[0] + TRUE[1] * x + noise)


def run() -> dict[str, Any]:
    """A chain, and what happened in the step of one draw."""
    torch.manual_seed(0)
    data = points(N, seed=1)
    model = Line()
    sampler = csgmcmc.SGLD(model.parameters(), lr=LR, num_data=N, seed=0)
    stepper = csgmcmc.Stepper(model, sampler, SCHEDULE, csgmcmc.MemoryDraws())
    found: dict[str, Any] = {"data": data}
    for x, y in stepper.batches(DataLoader(data, batch_size=BATCH, shuffle=True)):
        sampler.zero_grad()
        loss(model(x), y).backward()
        before, gradient = model.weights.detach().clone(), model.weights.grad
        assert gradient is not None  # noqa: S101
        tick = stepper.step()
        if tick.collect and tick.cycle == 2 and "tick" not in found:
            moved = -LR * tick.lr_scale * gradient.clone()
            after = model.weights.detach().clone()
            found |= {"batch": (x, y), "tick": tick, "before": before, "moved": moved}
            found["after"] = after
    likelihood = Gaussian(variance=NOISE**2)
    found["posterior"] = csgmcmc.Posterior(model, stepper.draws, likelihood=likelihood)
    held_out = DataLoader(points(400, seed=2), batch_size=400)
    found["check"] = found["posterior"].check(
        held_out, run=stepper, loss=loss, data=DataLoader(data, batch_size=BATCH)
    )
    return found


def draw(found: dict[str, Any]) -> None:
    """Seven panels, in the order of the data."""
    mpl.rcParams.update({"font.size": 11, "axes.titlesize": 12, "axes.titlelocation": "left"})
    rows = "batch schedule; sampler noise; store posterior; check check"
    layout: list[Any] = [row.split() for row in rows.split(";")]
    figure, axes = plt.subplot_mosaic(
        layout, figsize=(6.4, 9.2), layout="constrained", height_ratios=[1, 1, 1, 0.55]
    )
    for number, (name, panel) in enumerate(PANELS.items(), 1):
        axes[name].set_title(f"{number}  {name}", fontweight="bold")
        axes[name].spines[["top", "right"]].set_visible(False)
        panel(axes[name], found)
    figure.savefig(PATH, dpi=130)


def draw_batch(axis: Any, found: dict[str, Any]) -> None:
    x, y = found["data"].tensors
    axis.plot(x, y, "o", color=GREY, alpha=0.5, markersize=4)
    axis.plot(*found["batch"], "o", color=ORANGE, markersize=6)
    axis.set(xlabel="x", ylabel="y", xticks=[-1, 0, 1], yticks=[-1, 0, 1, 2])


def draw_schedule(axis: Any, found: dict[str, Any]) -> None:
    table = SCHEDULE.table()
    axis.plot(LR * table["lr_scale"], color=BLUE, label="lr")
    axis.plot(
        LR * table["temperature_scale"], color=VERMILION, lw=1, alpha=0.6, label="temperature"
    )
    step = found["tick"].step
    axis.plot(step, LR * found["tick"].lr_scale, "o", color=ORANGE, markersize=7)
    axis.set(xlabel="step", xticks=[0, 2000, 4000], yticks=[])
    axis.set_ylim(top=1.3 * LR)
    axis.legend(frameon=False, fontsize=9, loc="upper center", ncols=2)


def draw_plane(axis: Any, found: dict[str, Any], *, wide: bool) -> None:
    """The weights, with contours of the exact posterior density, and equal scales."""
    x, y = (each.double() for each in found["data"].tensors)
    design = torch.stack([torch.ones_like(x), x], 1)
    precision = design.T @ design / NOISE**2
    mean = torch.linalg.solve(precision, design.T @ y / NOISE**2)
    around, size = (mean, 0.4) if wide else (found["before"].double(), 0.1)
    grid = [np.linspace(float(c) - size, float(c) + size, 100) for c in around]
    offsets = np.stack(np.meshgrid(*grid), -1) - mean.numpy()
    squares = np.einsum("ijk,kl,ijl->ij", offsets, precision.numpy(), offsets)
    axis.contour(
        *grid, np.sqrt(squares), levels=np.arange(0.5, 3.1, 0.5), colors=GREY, linewidths=0.6
    )
    axis.set(xlabel="weight a", ylabel="weight b", xticks=[], yticks=[], aspect="equal")


def arrow(axis: Any, start: torch.Tensor, move: torch.Tensor, color: str, label: str) -> None:
    end = start + move
    axis.annotate(
        "", end.tolist(), start.tolist(), arrowprops={"arrowstyle": "->", "color": color, "lw": 2.2}
    )
    axis.plot([], [], color=color, lw=2.2, label=label)


def draw_sampler(axis: Any, found: dict[str, Any]) -> None:
    draw_plane(axis, found, wide=False)
    axis.plot(*found["before"].tolist(), "o", color="black", markersize=5)
    arrow(axis, found["before"], found["moved"], BLUE, "−lr · ∇U/N")
    axis.legend(frameon=True, framealpha=0.9, edgecolor="none", fontsize=9, loc="upper right")


def draw_noise(axis: Any, found: dict[str, Any]) -> None:
    draw_plane(axis, found, wide=False)
    start = found["before"] + found["moved"]
    axis.plot(*found["before"].tolist(), "o", color="black", markersize=5)
    arrow(axis, found["before"], found["moved"], BLUE, "−lr · ∇U/N")
    arrow(axis, start, found["after"] - start, VERMILION, "√(2 lr T/N) · ε")
    axis.plot(*found["after"].tolist(), "o", color=ORANGE, markersize=7)
    axis.legend(frameon=True, framealpha=0.9, edgecolor="none", fontsize=9, loc="upper right")


def draw_store(axis: Any, found: dict[str, Any]) -> None:
    draw_plane(axis, found, wide=True)
    kept = np.array([draw.tensors()["weights"].tolist() for draw in found["posterior"].draws])
    axis.plot(*kept.T, ".", color=GREEN, markersize=2.5)
    axis.plot(*found["after"].tolist(), "o", color=ORANGE, markersize=7)
    axis.text(0.97, 0.95, f"{len(kept)} draws", transform=axis.transAxes, ha="right", va="top")


def draw_posterior(axis: Any, found: dict[str, Any]) -> None:
    grid = torch.linspace(-1.6, 1.6, 100)
    p = found["posterior"].predict(grid, members=True)
    x, y = found["data"].tensors
    axis.plot(grid, p.members[::32].T, color=GREEN, lw=0.5, alpha=0.5)
    low, high = p.interval(0.9)
    axis.fill_between(grid, low, high, color=GREEN, alpha=0.18, linewidth=0)
    axis.plot(grid, p.mean, color="black", lw=1.5)
    axis.plot(x, y, "o", color=GREY, alpha=0.5, markersize=3)
    axis.set(xlabel="x", ylabel="y", xticks=[-1, 0, 1], yticks=[-1, 0, 1, 2])


def draw_check(axis: Any, found: dict[str, Any]) -> None:
    axis.axis("off")
    colors = {"yes": GREEN, "no": VERMILION, "unknown": GREY}
    names = ["learned", "sampling", "mixing", "calibrated", "better"]
    for number, name in enumerate(names):
        answer = getattr(found["check"], name).answer
        left = (number + 0.5) / len(names)
        axis.text(left, 0.62, name, ha="center", transform=axis.transAxes)
        axis.text(
            left,
            0.22,
            answer,
            ha="center",
            transform=axis.transAxes,
            color=colors[answer],
            fontweight="bold",
            fontsize=14,
        )


PANELS = {
    "batch": draw_batch,
    "schedule": draw_schedule,
    "sampler": draw_sampler,
    "noise": draw_noise,
    "store": draw_store,
    "posterior": draw_posterior,
    "check": draw_check,
}

if __name__ == "__main__":
    draw(run())
