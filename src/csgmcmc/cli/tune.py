"""`csgmcmc tune`: search for a recipe for the model of a user's own script."""

import math
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from csgmcmc.cli.messages import Script, fail, is_own
from csgmcmc.errors import ProcessError
from csgmcmc.task import load_function
from csgmcmc.tuning import Trial, read_trials
from csgmcmc.tuning import tune as search


def tune(
    script: Script,
    out: Annotated[Path, typer.Option(help="Folder for the search.")] = Path("runs/tune"),
    trials: Annotated[int, typer.Option(help="In total, with those of earlier calls.")] = 20,
    epochs: Annotated[
        float | None, typer.Option(help="Of each trial; by default those of the script's recipe.")
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Step size; by default found by a range test.")
    ] = None,
    held_out: Annotated[
        float, typer.Option(help="Share of the data held out, if there are no validation data.")
    ] = 0.2,
    seed: Annotated[int, typer.Option(help="Of initial weights, batches, noise and search.")] = 0,
    jobs: Annotated[
        int, typer.Option(help="Processes of this machine that run trials side by side.")
    ] = 1,
) -> None:
    """Search for lr, cycles, exploration and temperature for your own script.

    A range test finds lr; the others maximise the log score on validation data. Trials are saved in
    OUT as they end: the same command resumes a search that was stopped. The result is
    OUT/recipe.json.
    """
    try:
        recipe = search(
            load_function(script),
            out,
            trials=trials,
            epochs=epochs,
            lr=lr,
            held_out=held_out,
            seed=seed,
            jobs=jobs,
        )
        found = read_trials(out)
    except KeyboardInterrupt:
        typer.echo("csgmcmc: stopped; the same command resumes the search", err=True)
        raise typer.Exit(130) from None
    except ProcessError as error:
        raise fail(f"{error}; the same command resumes the search") from error
    except (ValueError, ImportError) as error:
        if not is_own(error):
            raise  # an error of the script: the traceback says where
        raise fail(str(error)) from error
    except OSError as error:
        if not str(error.filename).startswith(str(out)):
            raise  # not about the folder of the search: an error of the script
        raise fail(str(error)) from error
    console = Console()
    console.print(_table(found))
    console.print(
        f"best: lr {recipe.lr:g}, cycles {recipe.cycles}, exploration "
        f"{recipe.exploration:.2f}, temperature {recipe.temperature:.2g}. To run it:",
        highlight=False,
        soft_wrap=True,
    )
    typer.echo(
        f"csgmcmc run {shlex.quote(script)} --config {shlex.quote(str(out / 'recipe.json'))}"
    )


def _table(trials: list[Trial]) -> Table:
    """All trials: the best first, then those that were pruned or diverged."""
    table = Table("trial", "cycles", "exploration", "temperature", "log score", "", box=None)
    for trial in sorted(trials, key=_rank):
        whole = trial.outcome == "complete"
        table.add_row(
            str(trial.number),
            str(trial.cycles),
            f"{trial.exploration:.2f}",
            f"{trial.temperature:.2g}",
            "" if math.isnan(trial.score) else f"{trial.score:.4f}",
            "" if whole else f"{trial.outcome} after {trial.used:.0%}",
        )
    return table


def _rank(trial: Trial) -> tuple[bool, float]:
    return trial.outcome != "complete", math.inf if math.isnan(trial.score) else -trial.score
