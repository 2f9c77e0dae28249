"""Run the demo: three pictures in runs/demo, and a table of digits."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from examples.demo.digits import DigitsDemo
from examples.demo.digits_report import show_digits
from examples.demo.mixture import MixtureDemo, show_mixture
from examples.demo.moons import MoonsDemo, show_moons
from examples.demo.regression import RegressionDemo, show_regression


class Part(StrEnum):
    """Parts of the demo."""

    MIXTURE = "mixture"
    REGRESSION = "regression"
    MOONS = "moons"
    DIGITS = "digits"


def demo(
    part: Annotated[Part | None, typer.Option(help="Only this part.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(min=1, help="Mixture: steps of each chain.")] = 50_000,
    chains: Annotated[int, typer.Option(min=1, help="Mixture: number of chains.")] = 4,
    digits_steps: Annotated[int, typer.Option(min=1, help="Digits: steps of each method.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of initial weights and noise.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Digits: number of seeds.")] = 30,
) -> None:
    """What uncertainty is good for, in two minutes: three pictures, and a table of digits."""
    console = Console()
    torch.set_num_threads(1)  # the tensors are tiny: more threads only cost time
    try:  # settings are checked before the first part runs
        mixture = MixtureDemo(steps=steps, chains=chains, seed=seed)
        regression, moons = RegressionDemo(seed=seed), MoonsDemo(seed=seed)
        digits = DigitsDemo(steps=digits_steps, first_seed=seed, seeds=seeds)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    shows = {
        Part.MIXTURE: lambda: show_mixture(mixture, out, console),
        Part.REGRESSION: lambda: show_regression(regression, out, console),
        Part.MOONS: lambda: show_moons(moons, out, console),
        Part.DIGITS: lambda: show_digits(digits, console),
    }
    for show in shows.values() if part is None else [shows[part]]:
        show()


if __name__ == "__main__":
    typer.run(demo)
