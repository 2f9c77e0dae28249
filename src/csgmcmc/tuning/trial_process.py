"""Trials in processes of their own: what one of them does with what the search sends."""

import pickle
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from csgmcmc.arguments import shown
from csgmcmc.errors import DivergedError
from csgmcmc.randomness import seeded
from csgmcmc.recipe import Recipe
from csgmcmc.task import MakeTask, Task, check_pairs, make_task, with_new_model
from csgmcmc.tuning.held_out import HeldOut, with_validation
from csgmcmc.tuning.study import attach, import_optuna
from csgmcmc.tuning.trial import NonFinitePredictionError, run_trial


class Outcome(NamedTuple):
    """How a trial has ended: as `Trial.outcome` says, with its score and share of the budget."""

    words: str
    score: float
    used: float


def attempt(
    trial: Any,
    task: Task,
    recipe: Recipe,
    batches: list[Any],
    seed: int,
    on_step: Any = lambda _: None,
) -> Outcome:
    """Run one trial of a study, unless it is pruned or diverges."""
    optuna = import_optuna()
    used = 0.0

    def note_step(share: float) -> None:
        nonlocal used
        used = share
        on_step(share)

    def on_cycle(share: float, score: float) -> None:
        trial.report(score, step=round(100 * share))
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        with seeded(seed):
            score = run_trial(task, recipe, batches, on_cycle=on_cycle, on_step=note_step)
    except optuna.TrialPruned:
        return Outcome("pruned", 0.0, used)
    except (DivergedError, NonFinitePredictionError):
        return Outcome("diverged", 0.0, used)
    return Outcome("complete", score, used)


def prepare(make: MakeTask, held_out: float, seed: int) -> HeldOut:
    """The task of all trials, with validation data."""
    return with_validation(make_task(make, seed), held_out, seed)


def validation_batches(found: HeldOut, seed: int) -> list[Any]:
    """The batches that all trials are scored on."""
    with seeded(seed):
        return check_pairs(list(found.task.validation or ()), found.task.likelihood)


def pickled(make: MakeTask) -> bytes:
    """What another process needs to call `make`, or a `ValueError`."""
    try:
        return pickle.dumps(make)
    except Exception as error:
        raise ValueError(
            f"make must be a function of a module, which other processes can import, where jobs is "
            f"above 1, got {shown(make)}"
        ) from error


def attempt_here(
    out: Path, number: int, make: bytes, held_out: float, seed: int, recipe: Recipe
) -> Outcome:
    """Run the trial with this number of the search in a folder, in a process for trials."""
    function, found, batches = _prepared(make, held_out, seed)
    task = with_new_model(found.task, function, seed)
    return attempt(attach(out, number), task, recipe, batches, seed)


@cache
def _prepared(make: bytes, held_out: float, seed: int) -> tuple[MakeTask, HeldOut, list[Any]]:
    """Once in each process: reading the data may take long."""
    function = pickle.loads(make)  # noqa: S301  (of the process that started this one)
    found = prepare(function, held_out, seed)
    return function, found, validation_batches(found, seed)
