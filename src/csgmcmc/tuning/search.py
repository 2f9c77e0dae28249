"""The search for a recipe: lr by a range test, then M, beta and T by log score on validation data.

The paper recommends cross-validation for beta and T. Each trial is a whole run of the same number
of epochs from the same initial weights. After each cycle the posterior predictive so far is scored;
a trial below the median of the others at the same share of the budget is pruned.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from csgmcmc.arguments import check_count, check_number, shown
from csgmcmc.files import atomic_write
from csgmcmc.processes import side_by_side, threads_of_each
from csgmcmc.randomness import seeded
from csgmcmc.recipe import SEEDS, Recipe
from csgmcmc.stepper.fingerprint import describe_tensors
from csgmcmc.task import MakeTask, Task, with_new_model
from csgmcmc.tuning.held_out import HeldOut
from csgmcmc.tuning.progress import SearchDisplay
from csgmcmc.tuning.range_test import suggest_lr
from csgmcmc.tuning.study import ask, finished, import_optuna, open_study, trials_of
from csgmcmc.tuning.trial import trial_options
from csgmcmc.tuning.trial_process import (
    Outcome,
    attempt,
    attempt_here,
    pickled,
    prepare,
    validation_batches,
)

RECIPE = "recipe.json"
MOST_JOBS = 2**10


def tune(
    make: MakeTask,
    out: str | Path,
    *,
    trials: int = 20,
    epochs: float | None = None,
    lr: float | None = None,
    cycles: Sequence[int] = (1, 2, 4, 8),
    exploration: tuple[float, float] = (0.3, 0.95),
    temperature: tuple[float, float] = (1e-4, 1.0),
    held_out: float = 0.2,
    seed: int = 0,
    jobs: int = 1,
    progress: bool = True,
) -> Recipe:
    """Search for a recipe, save it as OUT/recipe.json, and return it.

    Trials are saved in `out` as they end: the same call resumes a stopped search, and a larger
    `trials` adds to it. The first trial is the task's own recipe. Needs Optuna:
    `pip install 'csgmcmc[tune]'`.

    Args:
        make: function that returns a new `Task`, or (model, loss, data), every time it is called.
        out: folder of the search.
        trials: total number of trials, including those of earlier calls.
        epochs: of each trial; by default those of the task's recipe.
        lr: step size at the start of each cycle; by default that of a range test.
        cycles: numbers of cycles to choose from; those too large for the epochs are left out.
        exploration: lowest and highest share of a cycle that explores.
        temperature: lowest and highest temperature, on a logarithmic scale.
        held_out: share of the training data to validate on, if the task has no validation data.
        seed: of initial weights, data order, noise and search.
        jobs: processes of this machine that run trials side by side. The search is exactly
            repeatable with 1; with more, which trials have ended when the next is chosen depends on
            the time that they take. `make` must then be a function of a module, and a script that
            calls this needs `if __name__ == "__main__":`.
        progress: show a bar, or lines if there is no terminal.
    """
    import_optuna()
    check_count("trials", trials, at_least=1)
    check_count("jobs", jobs, at_least=1, below=MOST_JOBS)
    check_count("seed", seed, at_least=0, below=SEEDS)
    if lr is not None:
        check_number("lr", lr, above=0)
    shares = _range("exploration", exploration, at_least=0, below=1)
    temperatures = _range("temperature", temperature, above=0)
    sent = pickled(make) if jobs > 1 else b""
    found = prepare(make, held_out, seed)
    recipe = found.task.recipe
    recipe = recipe.replace(
        epochs=recipe.epochs if epochs is None else epochs,
        seed=seed if recipe.seed is None else recipe.seed,
    )
    counts = _feasible(cycles, recipe, found.task, shares[1])
    batches = validation_batches(found, seed)
    space = {"cycles": counts, "exploration": shares, "temperature": temperatures}
    model = describe_tensors(found.task.model.state_dict())
    settings = {
        **{f"recipe.{name}": value for name, value in asdict(recipe).items()},
        "seed": seed,
        "lr": lr,
        **space,
        "scores": found.words,
        **{f"model.{name}": value for name, value in model.items()},
    }
    search = _Search(make, found, recipe, batches, seed, space)
    with open_study(Path(out), settings) as study:
        with SearchDisplay(trials, trials_of(study), progress) as display:
            search.find_lr(study, lr, display)
            missing = trials - len(finished(study))
            if min(jobs, missing) > 1:
                parts = (Path(out), sent, held_out)
                search.try_side_by_side(study, display, missing, min(jobs, missing), *parts)
            else:
                for _ in range(missing):
                    search.try_one(study, display)
        best = search.best(study)
        atomic_write(Path(out) / RECIPE, best.save)
    return best


@dataclass
class _Search:
    """What all trials of a search have in common."""

    make: MakeTask
    found: HeldOut
    recipe: Recipe
    batches: list[Any]
    seed: int
    space: dict[str, Any]

    def find_lr(self, study: Any, lr: float | None, display: SearchDisplay) -> None:
        """Set lr: the argument, that of an earlier call, or that of a range test."""
        display.say(f"{self.found.words}; {self.recipe.epochs:g} epochs for each trial")
        lr = study.user_attrs.get("lr") if lr is None else lr
        if lr is None:
            task = self.found.task
            parts = (task.model, task.loss, task.data)
            options = {"recipe": self.recipe, "num_data": task.num_data, **trial_options(task)}
            with seeded(self.seed):
                suggested = suggest_lr(*parts, **options)
            display.say(f"range test: unstable from lr {suggested.limit:.2g}, so {suggested.lr:g}")
            lr = suggested.lr
        study.set_user_attr("lr", lr)
        self.recipe = self.recipe.replace(lr=lr)

    def try_one(self, study: Any, display: SearchDisplay) -> None:
        """Run one more trial; an interrupted one does not count."""
        trial, recipe = self._ask(study)
        try:
            task = with_new_model(self.found.task, self.make, self.seed)
            ended = attempt(trial, task, recipe, self.batches, self.seed, display.advance)
        except BaseException:  # Ctrl-C too: the next call repeats it
            study.tell(trial, state=import_optuna().trial.TrialState.FAIL)
            raise
        self._tell(study, trial, ended, display)

    def try_side_by_side(
        self,
        study: Any,
        display: SearchDisplay,
        missing: int,
        jobs: int,
        out: Path,
        make: bytes,
        held_out: float,
    ) -> None:
        """Run the missing trials in processes; those that are interrupted do not count.

        This process chooses trials and writes how they end; the others report their scores.
        """

        def calls() -> Iterator[tuple[Any, tuple[Any, ...]]]:
            for _ in range(missing):
                trial, recipe = self._ask(study, jobs)
                yield trial, (out, trial.number, make, held_out, self.seed, recipe)

        threads = threads_of_each(jobs)
        for trial, ended in side_by_side(attempt_here, calls(), jobs=jobs, threads=threads):
            self._tell(study, trial, ended, display)

    def _ask(self, study: Any, jobs: int = 1) -> tuple[Any, Recipe]:
        """The next trial, and its recipe."""
        trial = ask(study, self.seed, self._first(), jobs=jobs)
        return trial, self.recipe.replace(
            cycles=trial.suggest_categorical("cycles", self.space["cycles"]),
            exploration=trial.suggest_float("exploration", *self.space["exploration"]),
            temperature=trial.suggest_float("temperature", *self.space["temperature"], log=True),
        )

    def _tell(self, study: Any, trial: Any, ended: Outcome, display: SearchDisplay) -> None:
        """Write how a trial has ended, and show it."""
        if ended.words == "complete":
            study.tell(trial, ended.score)
        else:
            trial.set_user_attr("outcome", ended.words)
            trial.set_user_attr("used", ended.used)
            study.tell(trial, state=import_optuna().trial.TrialState.PRUNED)
        at = [one.number for one in finished(study)].index(trial.number)
        display.end(trials_of(study)[at])

    def best(self, study: Any) -> Recipe:
        """The recipe of the trial with the highest score."""
        complete = [trial for trial in trials_of(study) if trial.outcome == "complete"]
        if not complete:
            raise ValueError(
                f"all {len(finished(study))} trials diverged: give a lower lr than "
                f"{self.recipe.lr:g}, or clip in the task's chain_options"
            )
        best = max(complete, key=lambda trial: trial.score)
        return self.recipe.replace(**{name: getattr(best, name) for name in self.space})

    def _first(self) -> dict[str, Any]:
        """The task's own settings, clipped to the search space."""
        own, space = self.recipe, self.space
        return {
            "cycles": min(space["cycles"], key=lambda count: abs(count - own.cycles)),
            "exploration": float(np.clip(own.exploration, *space["exploration"])),
            "temperature": float(np.clip(own.temperature, *space["temperature"])),
        }


def _range(name: str, values: Sequence[float], **bounds: float) -> tuple[float, float]:
    ends = list(values) if isinstance(values, Iterable) else []
    numbers = [check_number(name, value, **bounds) for value in ends]
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise ValueError(f"{name} must be a lowest and a highest value, got {shown(values)}")
    return numbers[0], numbers[1]


def _feasible(cycles: Sequence[int], recipe: Recipe, task: Task, exploration: float) -> list[int]:
    """The numbers of cycles for which the shortest sampling stage still fits all draws."""
    epoch = task.steps_per_epoch()
    counts = sorted({check_count("cycles", count, at_least=1) for count in cycles})
    fits: list[int] = []
    for count in counts:
        try:
            recipe.replace(cycles=count, exploration=exploration).make_schedule(epoch)
        except ValueError:
            continue
        fits.append(count)
    if not fits:
        raise ValueError(
            f"epochs={recipe.epochs:g} of {epoch} steps are too few for cycles={list(cycles)} with "
            f"{recipe.draws_per_cycle} draws per cycle: give more epochs, or a lower exploration"
        )
    return fits
