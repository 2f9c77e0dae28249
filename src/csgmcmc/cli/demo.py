"""`csgmcmc demo`: the method in two minutes."""

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
    DIGITS = "digits"


def demo(
    part: Annotated[Part | None, typer.Option(help="Only this part.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("runs/demo"),
    steps: Annotated[int, typer.Option(help="Mixture: iterations of each chain.")] = 50_000,
    chains: Annotated[int, typer.Option(help="Mixture: number of chains.")] = 4,
    digits_steps: Annotated[int, typer.Option(help="Digits: steps of each method.")] = 4000,
    seed: Annotated[int, typer.Option(help="Seed of initial weights and noise.")] = 0,
    seeds: Annotated[int, typer.Option(help="Digits: number of seeds, from --seed on.")] = 1,
) -> None:
    """The method in two minutes: 25 Gaussians, and a network on handwritten digits."""
    # Here, because it takes a second to import: --help needs none of it.
    from csgmcmc.demo import DigitsDemo, MixtureDemo, show_digits, show_mixture  # noqa: PLC0415

    console = Console()
    torch.set_num_threads(1)  # the tensors are tiny: more threads only cost time
    try:
        shows = []  # arguments are checked before the first part runs
        if part is not Part.DIGITS:
            mixture = MixtureDemo(steps=steps, chains=chains, seed=seed)
            shows.append(lambda: show_mixture(mixture, out, console))
        if part is not Part.MIXTURE:
            digits = DigitsDemo(steps=digits_steps, first_seed=seed, seeds=seeds)
            shows.append(lambda: show_digits(digits, console))
        import matplotlib  # noqa: F401, PLC0415  (an extra, for the picture and for letters)

        if part is not Part.DIGITS:
            out.mkdir(parents=True, exist_ok=True)
        for show in shows:
            show()
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        raise fail(f"{package} is missing: pip install 'csgmcmc[plot]'") from error
    except (ValueError, OSError) as error:
        raise fail(str(error)) from error
