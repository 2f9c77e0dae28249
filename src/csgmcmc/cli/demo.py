"""`csgmcmc demo`: what uncertainty is good for, in two minutes."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from csgmcmc.cli.messages import fail


class Part(StrEnum):
    """Parts of the demo."""

    MIXTURE = "mixture"
    REGRESSION = "regression"
    MOONS = "moons"
    DIGITS = "digits"


def demo(
    part: Annotated[Part | None, typer.Option(help="Only this part.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(help="Mixture: iterations of each chain.")] = 50_000,
    chains: Annotated[int, typer.Option(help="Mixture: number of chains.")] = 4,
    digits_steps: Annotated[int, typer.Option(help="Digits: steps of each method.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of initial weights and noise.")] = 0,
    seeds: Annotated[int, typer.Option(help="Digits: number of seeds, from --seed on.")] = 30,
) -> None:
    """What uncertainty is good for, in two minutes: three pictures, and a table of digits."""
    # Here, because it takes a second to import: --help needs none of it.
    from csgmcmc import demo as parts  # noqa: PLC0415

    console = Console()
    torch.set_num_threads(1)  # the tensors are tiny: more threads only cost time
    try:
        # Arguments are checked before the first part runs.
        mixture = parts.MixtureDemo(steps=steps, chains=chains, seed=seed)
        regression, moons = parts.RegressionDemo(seed=seed), parts.MoonsDemo(seed=seed)
        digits = parts.DigitsDemo(steps=digits_steps, first_seed=seed, seeds=seeds)
        import matplotlib  # noqa: F401, PLC0415  (an extra, for the pictures and for letters)

        shows = {
            Part.MIXTURE: lambda: parts.show_mixture(mixture, out, console),
            Part.REGRESSION: lambda: parts.show_regression(regression, out, console),
            Part.MOONS: lambda: parts.show_moons(moons, out, console),
            Part.DIGITS: lambda: parts.show_digits(digits, console),
        }
        if part is not Part.DIGITS:
            out.mkdir(parents=True, exist_ok=True)
        for show in shows.values() if part is None else [shows[part]]:
            show()
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        raise fail(f"{package} is missing: pip install 'csgmcmc[plot]'") from error
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
