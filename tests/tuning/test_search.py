import itertools
import json
import math
import shutil
import sys
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import optuna
import pytest
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from csgmcmc import MemoryDraws, Posterior, Recipe, Task
from csgmcmc.posterior import Gaussian
from csgmcmc.randomness import seeded
from csgmcmc.task import make_task as seeded_task
from csgmcmc.tuning import read_trials, suggest_lr, tune
from csgmcmc.tuning.study import ask, open_study
from tests.tuning.support import EPOCHS, RECIPE, make_task, points, search


def plain(trials):
    """What two searches must have in common."""
    return [json.dumps(asdict(trial)) for trial in trials]


def test_the_recipe_is_that_of_the_best_trial_and_can_be_run(tmp_path):
    recipe = search(tmp_path, trials=4)
    assert recipe == Recipe.load(tmp_path / "recipe.json")
    assert (recipe.lr, recipe.epochs, recipe.draws_per_cycle) == (0.1, EPOCHS, 2)
    trials = read_trials(tmp_path)
    assert [trial.number for trial in trials] == [1, 2, 3, 4]
    best = max((t for t in trials if t.outcome == "complete"), key=lambda t: t.score)
    assert (recipe.cycles, recipe.exploration, recipe.temperature) == (
        best.cycles,
        best.exploration,
        best.temperature,
    )
    # The score is that of the average of all draws, and anyone can have it again.
    task = seeded_task(make_task, 0)
    with seeded(0):
        draws = recipe.make_chain(task.model, task.loss, task.data, MemoryDraws(), progress=False)
        posterior = Posterior(task.model, draws.run(), progress=False)
    assert task.validation is not None
    average = posterior.predict_loader(task.validation)
    assert average.targets is not None
    scores = average.log_probs[torch.arange(180), average.targets]  # pyright: ignore[reportAttributeAccessIssue]
    assert scores.mean().item() == pytest.approx(best.score, abs=1e-6)


def test_the_tasks_own_recipe_is_tried_first_within_the_bounds(tmp_path):
    search(tmp_path, trials=1)
    (trial,) = read_trials(tmp_path)
    assert (trial.cycles, trial.exploration, trial.temperature) == (4, 0.8, 0.01)
    search(tmp_path / "other", trials=1, cycles=(1, 3), temperature=(0.1, 1.0))
    (trial,) = read_trials(tmp_path / "other")
    assert (trial.cycles, trial.exploration, trial.temperature) == (3, 0.8, 0.1)


def test_without_lr_it_is_that_of_the_range_test(tmp_path):
    recipe = search(tmp_path, trials=1, lr=None)
    task = seeded_task(make_task, 0)
    with seeded(0):
        assert recipe.lr == suggest_lr(task.model, task.loss, task.data, recipe=task.recipe).lr


class Counted:
    """A function that counts its calls: one for the search, and one for each trial."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Task:
        self.calls += 1
        return make_task()


def test_a_search_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path):
    expected = search(tmp_path / "whole", trials=5)
    search(tmp_path / "parts", trials=2)
    make = Counted()
    assert search(tmp_path / "parts", make, trials=5) == expected
    assert make.calls == 1 + 3
    assert plain(read_trials(tmp_path / "parts")) == plain(read_trials(tmp_path / "whole"))
    make = Counted()
    assert search(tmp_path / "parts", make, trials=5) == expected
    assert make.calls == 1


def interrupted(at: int):
    """A task whose loss is interrupted, as by Ctrl-C, when it is evaluated for the n-th time."""
    calls = itertools.count(1)

    def loss(outputs, targets):
        if next(calls) == at:
            raise KeyboardInterrupt
        return cross_entropy(outputs, targets)

    return lambda: make_task(loss)


@pytest.mark.parametrize("at", [50, 150])
def test_ctrl_c_in_a_trial_loses_that_trial_only(tmp_path, at):
    search(tmp_path / "whole", trials=3)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "parts", interrupted(at), trials=3)
    assert len(read_trials(tmp_path / "parts")) == at // 96
    assert not (tmp_path / "parts" / "recipe.json").exists()
    search(tmp_path / "parts", trials=3)
    assert plain(read_trials(tmp_path / "parts")) == plain(read_trials(tmp_path / "whole"))


def test_a_search_that_was_killed_while_writing_goes_on(tmp_path):
    expected = search(tmp_path / "whole", trials=3)
    search(tmp_path / "parts", trials=2)
    journal = tmp_path / "parts" / "trials.jsonl"
    storage = JournalStorage(JournalFileBackend(str(journal)))
    optuna.load_study(study_name="csgmcmc", storage=storage).ask()  # never told
    with journal.open("a") as file:
        file.write('{"op_code": 8, "wor')
    journal.with_name("trials.jsonl.lock").symlink_to(journal)
    assert search(tmp_path / "parts", trials=3) == expected
    assert plain(read_trials(tmp_path / "parts")) == plain(read_trials(tmp_path / "whole"))


def in_sequence(function, calls, **_):
    """As `side_by_side`, without other processes."""
    return ((key, function(*arguments)) for key, arguments in calls)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_trials_side_by_side_are_as_many_as_wanted_and_differ(tmp_path, monkeypatch, processes):
    if not processes:
        monkeypatch.setattr("csgmcmc.tuning.search.side_by_side", in_sequence)
    recipe = search(tmp_path, trials=5, jobs=2)
    trials = read_trials(tmp_path)
    assert len(trials) == 5
    settings = [(trial.cycles, trial.exploration, trial.temperature) for trial in trials]
    assert settings[0] == (4, 0.8, 0.01)  # the task's own
    assert len(set(settings)) == 5
    best = max((t for t in trials if t.outcome == "complete"), key=lambda t: t.score)
    assert (recipe.cycles, recipe.exploration, recipe.temperature) == settings[best.number - 1]
    # A trial's score does not depend on where it ran.
    search(tmp_path / "alone", trials=1)
    assert read_trials(tmp_path / "alone")[0].score == pytest.approx(trials[0].score, abs=1e-6)
    search(tmp_path, trials=6)  # one more, and here
    assert plain(read_trials(tmp_path))[:5] == plain(trials)
    assert len(read_trials(tmp_path)) == 6


def test_a_function_that_other_processes_cannot_import_is_refused(tmp_path):
    with pytest.raises(ValueError, match="make must be a function of a module"):
        search(tmp_path / "out", lambda: make_task(), jobs=2)  # noqa: PLW0108
    assert not (tmp_path / "out").exists()


def failing(trial: int, loss):
    """A task whose loss is another one in the n-th trial."""
    calls = itertools.count()

    def make():
        return make_task(loss if next(calls) == trial else cross_entropy)

    return make


def test_a_trial_that_diverges_is_no_end(tmp_path):
    def broken(outputs, targets):
        return cross_entropy(outputs, targets) * math.nan

    search(tmp_path, failing(2, broken), trials=3)
    outcomes = [trial.outcome for trial in read_trials(tmp_path)]
    assert outcomes == ["complete", "diverged", "complete"]
    assert math.isnan(read_trials(tmp_path)[1].score)


def test_a_hopeless_trial_is_given_up_early(tmp_path):
    def backwards(outputs, targets):
        return cross_entropy(outputs, 1 - targets)

    search(tmp_path, failing(6, backwards), trials=6, cycles=(4,))
    last = read_trials(tmp_path)[-1]
    assert last.outcome == "pruned"
    assert last.used in (0.25, 0.5)
    assert last.score < max(trial.score for trial in read_trials(tmp_path))


def test_where_all_trials_diverge_it_says_so(tmp_path):
    def broken(outputs, targets):
        return cross_entropy(outputs, targets) * math.nan

    with pytest.raises(ValueError, match="all 2 trials diverged"):
        search(tmp_path, lambda: make_task(broken), trials=2)


def test_errors_of_the_users_own_code_come_through_and_do_not_count(tmp_path):
    def broken(outputs, targets):
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        search(tmp_path, failing(2, broken), trials=3)
    assert len(read_trials(tmp_path)) == 1


def test_other_settings_are_refused_by_name(tmp_path):
    search(tmp_path, trials=1)
    with pytest.raises(ValueError, match=r"a search with epochs=16, and this one has 8"):
        search(tmp_path, epochs=8)
    with pytest.raises(ValueError, match=r"a search with seed=0, and this one has 1"):
        search(tmp_path, seed=1)
    wider = replace(make_task(), model=nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 2)))
    with pytest.raises(ValueError, match=r"a search with model.0.weight=\(8, 4\)"):
        search(tmp_path, lambda: wider)


def test_two_searches_in_one_folder_are_refused(tmp_path):
    def make():
        if not inside:
            inside.append(True)
            return make_task()
        with pytest.raises(ValueError, match="another search is running in"):
            search(tmp_path)
        return make_task()

    inside: list[bool] = []
    search(tmp_path, make, trials=1)


def test_weights_that_are_not_new_are_refused(tmp_path):
    task = make_task()
    with pytest.raises(ValueError, match="make the model inside the function"):
        search(tmp_path, lambda: task)


def test_nothing_global_is_changed(tmp_path, capsys):
    state, verbosity = torch.get_rng_state(), optuna.logging.get_verbosity()
    search(tmp_path, trials=2)
    assert torch.equal(torch.get_rng_state(), state)
    assert optuna.logging.get_verbosity() == verbosity
    assert capsys.readouterr() == ("", "")


def test_data_in_an_order_of_their_own_are_the_same_for_each_trial(tmp_path):
    """A loader's generator goes on from trial to trial unless it is put back."""

    def make():
        order = torch.Generator().manual_seed(3)
        return make_task(data=DataLoader(points(), 20, shuffle=True, generator=order))

    def scores(folder, trials):
        search(folder, make, trials=trials, cycles=(1,), exploration=(0.8, 0.8), temperature=(1, 1))
        return [trial.score for trial in read_trials(folder)]

    first, second = scores(tmp_path, 2)
    assert first == second


def test_callbacks_of_the_task_are_called(tmp_path):
    seen = []
    options = {"callbacks": seen.append, "checkpoint_dir": tmp_path / "c"}
    make = partial(make_task, chain_options=options)
    search(tmp_path / "out", make, trials=2, cycles=(1,))
    assert len(seen) == 2 * 6 * EPOCHS
    assert not (tmp_path / "c").exists()


def test_a_regression_is_scored_by_its_likelihood(tmp_path):
    inputs = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    targets = inputs.sum(1, keepdim=True)
    loader = DataLoader(TensorDataset(inputs, targets), 25, shuffle=True)

    def loss(outputs, targets):
        return (outputs - targets).square().mean() / 2

    values = {"data": loader, "validation": None, "recipe": RECIPE}
    make = lambda: Task(nn.Linear(3, 1), loss, likelihood=Gaussian(variance=1.0), **values)  # noqa: E731
    search(tmp_path, make, trials=2)
    # A line fits without error: what is left is the noise that the likelihood says there is.
    most = -np.log(2 * np.pi) / 2
    assert most - 0.3 < max(trial.score for trial in read_trials(tmp_path)) <= most
    with pytest.raises(ValueError, match="targets are not integers"):
        search(tmp_path / "b", lambda: Task(nn.Linear(3, 1), loss, **values), trials=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"jobs": 10**6}, "jobs must be below 1024, got 1000000"),
        ({"epochs": -1}, "epochs must be above 0, got -1"),
        ({"epochs": 0.5}, r"epochs=0.5 of 6 steps are too few for cycles=\[1, 2, 4\] with 2 draws"),
        ({"lr": 0.0}, "lr must be above 0, got 0.0"),
        ({"cycles": (0,)}, "cycles must be at least 1, got 0"),
        ({"exploration": 0.5}, "exploration must be a lowest and a highest value, got 0.5"),
        ({"exploration": (0.5, 1.0)}, "exploration must be at least 0 and below 1, got 1.0"),
        ({"temperature": (1.0, 0.1)}, "temperature must be a lowest and a highest value"),
        ({"temperature": (0.0, 1.0)}, "temperature must be above 0, got 0.0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        search(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_cycles_that_are_too_many_for_the_epochs_are_left_out(tmp_path):
    search(tmp_path, trials=2, epochs=4, cycles=(1, 8))
    assert {trial.cycles for trial in read_trials(tmp_path)} == {1}


def test_without_optuna_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'csgmcmc\[tune\]'"):
        tune(make_task, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_without_a_search_is_told(tmp_path):
    with pytest.raises(ValueError, match="holds no search"):
        read_trials(tmp_path)


def test_trials_that_were_lost_while_later_ones_ended_are_tried_again(tmp_path):
    first = {"cycles": 2, "exploration": 0.5, "temperature": 0.1}

    def asked(study, jobs):
        trial = ask(study, 0, first, jobs=jobs)
        values = (
            trial.suggest_categorical("cycles", [1, 2, 4]),
            trial.suggest_float("exploration", 0.3, 0.9),
            trial.suggest_float("temperature", 1e-4, 1.0, log=True),
        )
        return trial, values

    with open_study(tmp_path, {}) as study:
        trials, values = zip(*[asked(study, 3) for _ in range(3)], strict=True)
        assert values[0] == tuple(first.values())
        study.tell(trials[1], -1.0)  # then the search is killed
    for jobs in (1, 2):
        out = shutil.copytree(tmp_path, tmp_path.with_name(f"{jobs} jobs"))
        with open_study(out, {}) as study:
            again = []
            for _ in range(3):
                trial, found = asked(study, jobs)
                again.append(found)
                study.tell(trial, -2.0)
            assert again[0] == values[0]
            assert len({values[1], *again}) == 4
