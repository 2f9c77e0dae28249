"""The search for a recipe: lr by a range test, then M, beta and T by a log score on held-out data.

The paper says that beta and T want cross-validation. Each trial is a whole run of the same epochs
from the same start, scored by its averaged prediction after each cycle; one that is worse than half
of the others at the same share of the budget is given up.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from csgmcmc.arguments import check_count, check_number
from csgmcmc.errors import DivergedError
from csgmcmc.files import atomic_write
from csgmcmc.recipe import Recipe, batches_of
from csgmcmc.stepper.fingerprint import describe_tensors
from csgmcmc.task import MakeTask, Task, check_pairs, make_task, seeded
from csgmcmc.tuning.held_out import HeldOut, with_validation
from csgmcmc.tuning.progress import SearchDisplay
from csgmcmc.tuning.range_test import suggest_lr
from csgmcmc.tuning.study import ask, finished, import_optuna, open_study, trials_of
from csgmcmc.tuning.trial import OWN, UselessError, run_trial

RECIPE = "recipe.json"


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
    progress: bool = True,
) -> Recipe:
    """Search for a recipe, save it as OUT/recipe.json, and return it.

    What was found so far is in `out`: the same call goes on from there, and more `trials` add to
    them. The first trial is the task's own recipe. It needs Optuna: `pip install 'csgmcmc[tune]'`.

    Args:
        make: function that returns a new `Task`, or (model, loss, data), every time it is called.
        out: folder of the search.
        trials: how many settings to try, those of earlier calls included.
        epochs: of each trial; by default those of the task's recipe.
        lr: the step size; by default that of a range test.
        cycles: numbers of cycles to choose from; those too many for the epochs are left out.
        exploration: lowest and highest share of a cycle that explores.
        temperature: lowest and highest temperature, on a logarithmic scale.
        held_out: share of the training data to validate on, if the task has no validation data.
        seed: of the starts, the order of the data, the noise and the search.
        progress: show a bar, or lines where there is no terminal.
    """
    import_optuna()
    check_count("trials", trials, at_least=1)
    check_count("seed", seed, at_least=0)
    if lr is not None:
        check_number("lr", lr, above=0)
    shares = _range("exploration", exploration, at_least=0, below=1)
    heats = _range("temperature", temperature, above=0)
    found = with_validation(make_task(make, seed), held_out, seed)
    recipe = found.task.recipe
    recipe = recipe.replace(
        epochs=recipe.epochs if epochs is None else epochs,
        seed=seed if recipe.seed is None else recipe.seed,
    )
    counts = _feasible(cycles, recipe, found.task, shares[1])
    with seeded(seed):
        batches = check_pairs(list(found.task.validation or ()), found.task.likelihood)
    settings = {
        "recipe": asdict(recipe),
        "seed": seed,
        "lr": lr,
        "cycles": counts,
        "exploration": shares,
        "temperature": heats,
        "scores": found.words,
        "model": describe_tensors(found.task.model.state_dict()),
    }
    search = _Search(make, found, recipe, batches, seed)
    with open_study(Path(out), settings) as study:
        search.find_lr(study, lr, progress)
        space = {"cycles": counts, "exploration": shares, "temperature": heats}
        with SearchDisplay(trials, trials_of(study), progress) as display:
            while len(finished(study)) < trials:
                search.try_one(study, space, display)
        best = search.best(study)
        atomic_write(Path(out) / RECIPE, best.save)
    return best


class _Search:
    """What all trials of a search share."""

    def __init__(
        self, make: MakeTask, found: HeldOut, recipe: Recipe, batches: list[Any], seed: int
    ) -> None:
        self._make, self._found, self._recipe = make, found, recipe
        self._batches, self._seed = batches, seed

    def find_lr(self, study: Any, lr: float | None, progress: bool) -> None:
        """Set the step size: the one given, that of an earlier call, or that of a range test."""
        display = SearchDisplay(0, [], progress)
        task = self._found.task
        display.say(f"{self._found.words}; {self._recipe.epochs:g} epochs for each trial")
        known = study.user_attrs.get("lr")
        if lr is None and known is None:
            options = {name: value for name, value in task.options.items() if name not in OWN}
            with seeded(self._seed):
                suggested = suggest_lr(
                    task.model,
                    task.loss,
                    task.data,
                    recipe=self._recipe,
                    num_data=task.num_data,
                    **options,
                )
            display.say(f"range test: unstable from lr {suggested.limit:.2g}, so {suggested.lr:g}")
            lr = suggested.lr
        lr = known if lr is None else lr
        study.set_user_attr("lr", lr)
        self._recipe = self._recipe.replace(lr=lr)

    def try_one(self, study: Any, space: dict[str, Any], display: SearchDisplay) -> None:
        """One more trial; stopped, it does not count."""
        optuna = import_optuna()
        states = optuna.trial.TrialState
        trial = ask(study, self._seed, self._first(space))
        used = 0.0

        def on_step(share: float) -> None:
            nonlocal used
            used = share
            display.advance(share)

        def on_cycle(share: float, score: float) -> None:
            trial.report(score, step=round(100 * share))
            if trial.should_prune():
                raise optuna.TrialPruned

        recipe = self._recipe.replace(
            cycles=trial.suggest_categorical("cycles", space["cycles"]),
            exploration=trial.suggest_float("exploration", *space["exploration"]),
            temperature=trial.suggest_float("temperature", *space["temperature"], log=True),
        )
        try:
            task = self._fresh_task()
            with seeded(self._seed):
                score = run_trial(task, recipe, self._batches, on_cycle=on_cycle, on_step=on_step)
        except (DivergedError, UselessError, optuna.TrialPruned) as error:
            pruned = isinstance(error, optuna.TrialPruned)
            trial.set_user_attr("outcome", "pruned" if pruned else "diverged")
            trial.set_user_attr("used", used)
            study.tell(trial, state=states.PRUNED)
        except BaseException:  # Ctrl-C, too: the next call tries it again
            study.tell(trial, state=states.FAIL)
            raise
        else:
            study.tell(trial, score)
        display.end(trials_of(study)[-1])

    def best(self, study: Any) -> Recipe:
        """The recipe of the trial with the highest score."""
        complete = [trial for trial in trials_of(study) if trial.outcome == "complete"]
        if not complete:
            raise ValueError(
                f"none of {len(finished(study))} trials came to its end, all of them diverged: "
                f"give a lower lr than {self._recipe.lr:g}, or clip in the task's options"
            )
        best = max(complete, key=lambda trial: trial.score)
        return self._recipe.replace(
            cycles=best.cycles, exploration=best.exploration, temperature=best.temperature
        )

    def _fresh_task(self) -> Task:
        """The same data, so that what is held out stays so, and a model that is not trained."""
        first = self._found.task
        other = make_task(self._make, self._seed)
        trained = {id(param) for param in first.model.parameters() if param.requires_grad}
        if any(id(param) in trained for param in other.model.parameters()):
            raise ValueError(
                "the function returned the same weights when it was called again: make the model "
                "inside of it, so that each trial has a start of its own"
            )
        return replace(first, model=other.model, loss=other.loss)

    def _first(self, space: dict[str, Any]) -> dict[str, Any]:
        """The task's own settings, moved into the space that is searched."""
        own = self._recipe
        low, high = space["exploration"]
        coldest, hottest = space["temperature"]
        return {
            "cycles": min(space["cycles"], key=lambda count: abs(count - own.cycles)),
            "exploration": min(max(own.exploration, low), high),
            "temperature": min(max(own.temperature, coldest), hottest),
        }


def _range(name: str, values: Sequence[float], **bounds: float) -> tuple[float, float]:
    try:
        low, high = values
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a lowest and a highest value, got {values!r}") from error
    low, high = check_number(name, low, **bounds), check_number(name, high, **bounds)
    if low > high:
        raise ValueError(f"{name} must be a lowest and a highest value, got {values!r}")
    return low, high


def _feasible(cycles: Sequence[int], recipe: Recipe, task: Task, exploration: float) -> list[int]:
    """The numbers of cycles for which even the shortest sampling stage holds all its draws."""
    epoch = max(1, batches_of(task.data) // task.options.get("accumulate", 1))
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
            f"{recipe.draws_per_cycle} draws in each: give more epochs, or a lower exploration"
        )
    return fits
