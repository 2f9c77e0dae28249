"""The record of a search: an Optuna study in a file, from which a stopped search resumes."""

import itertools
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csgmcmc.draws.lock import Lock
from csgmcmc.errors import LockedError
from csgmcmc.integrations.missing import require

JOURNAL = "trials.jsonl"
STARTUP_TRIALS = 8  # drawn at random, before the TPE sampler uses them


@dataclass(frozen=True)
class Trial:
    """One trial of a search.

    Attributes:
        number: from 1, in the order in which trials began.
        cycles: number of cycles, M.
        exploration: share of a cycle that explores, beta.
        temperature: T.
        score: last mean log score on the validation data; NaN if there is none.
        outcome: "complete", "pruned" or "diverged".
        used: share of the budget that was used.
    """

    number: int
    cycles: int
    exploration: float
    temperature: float
    score: float
    outcome: str
    used: float


def import_optuna() -> Any:
    """Import Optuna, which is slow, or raise an `ImportError` that says how to install it."""
    return require("optuna", "tune")


@contextmanager
def open_study(out: Path, settings: Mapping[str, Any]) -> Iterator[Any]:
    """Create or resume the study in a folder; an unfinished trial is dropped."""
    optuna = import_optuna()
    out.mkdir(parents=True, exist_ok=True)
    try:
        lock = Lock(out / "search.lock", "the search")
    except LockedError as error:
        raise ValueError(f"another search is running in {out}: give another out") from error
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        _mend(out / JOURNAL)
        study = optuna.create_study(
            study_name="csgmcmc",
            storage=_storage(optuna, out / JOURNAL),
            direction="maximize",
            load_if_exists=True,
        )
        _check_same(study, settings, out)
        states = optuna.trial.TrialState
        for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            study.tell(trial.number, state=states.FAIL)  # left by a killed process
        yield study
    finally:
        optuna.logging.set_verbosity(before)
        lock.release()


def ask(study: Any, seed: int, first: Mapping[str, Any], *, jobs: int = 1) -> Any:
    """The next trial of a study; it depends only on the seed and on the trials that have ended.

    So a search that was stopped continues exactly, and one that was lost is repeated. `first` holds
    the values of the first trial. With several `jobs`, trials that are running are taken for bad
    ones, so that others are not like them.
    """
    optuna = import_optuna()
    states = optuna.trial.TrialState
    waiting = study.get_trials(deepcopy=False, states=(states.WAITING,))
    taken = study.get_trials(
        deepcopy=False, states=(states.COMPLETE, states.PRUNED, states.RUNNING)
    )
    # Those of earlier versions have no number: they began in this order.
    numbers = {trial.user_attrs.get("number", at) for at, trial in enumerate(taken)}
    number = next(each for each in itertools.count() if each not in numbers)
    if number == 0 and not waiting:
        study.enqueue_trial(dict(first))
    experimental = optuna.exceptions.ExperimentalWarning
    options: dict[str, Any] = {"constant_liar": True} if jobs > 1 else {}
    with warnings.catch_warnings(action="ignore", category=experimental):
        study.sampler = optuna.samplers.TPESampler(
            seed=seed + number, n_startup_trials=STARTUP_TRIALS, **options
        )
    study.pruner = _pruner(optuna)
    trial = study.ask()
    trial.set_user_attr("number", number)
    return trial


def attach(out: Path, number: int) -> Any:
    """The running trial of a study with this number, in another process than its search."""
    optuna = import_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = _storage(optuna, out / JOURNAL)
    options = {"sampler": optuna.samplers.RandomSampler(), "pruner": _pruner(optuna)}
    study = optuna.load_study(study_name="csgmcmc", storage=storage, **options)
    study_id = storage.get_study_id_from_name(study.study_name)
    trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
    return optuna.trial.Trial(study, trial_id)


def _pruner(optuna: Any) -> Any:
    """A trial is pruned if it is below the median of the others at the same share of the budget."""
    return optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=20, n_min_trials=3)


def finished(study: Any) -> list[Any]:
    """The trials that count: those that were not interrupted."""
    states = import_optuna().trial.TrialState
    return study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))


def trials_of(study: Any) -> list[Trial]:
    """The finished trials of a study, as plain values."""
    return [_as_trial(number, trial) for number, trial in enumerate(finished(study), start=1)]


def read_trials(out: str | Path) -> list[Trial]:
    """The finished trials of the search in a folder."""
    path = Path(out) / JOURNAL
    if not path.exists():
        raise ValueError(f"{out} holds no search: it has no {JOURNAL}")
    optuna = import_optuna()
    return trials_of(optuna.load_study(study_name="csgmcmc", storage=_storage(optuna, path)))


def _as_trial(number: int, trial: Any) -> Trial:
    if trial.state.name == "COMPLETE":
        return Trial(number, **trial.params, score=trial.value, outcome="complete", used=1.0)
    reported, attributes = trial.intermediate_values, trial.user_attrs
    last = max(reported, default=0)
    return Trial(
        number,
        **trial.params,
        score=reported.get(last, math.nan),
        outcome=attributes.get("outcome", "pruned"),
        used=attributes.get("used", last / 100),
    )


def _storage(optuna: Any, path: Path) -> Any:
    experimental = optuna.exceptions.ExperimentalWarning  # as journals were until early Optuna 4
    with warnings.catch_warnings(action="ignore", category=experimental):
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


def _mend(path: Path) -> None:
    """Remove what a process that was killed while writing has left behind.

    The folder is locked: nobody else is writing.
    """
    for left in path.parent.glob(f"{path.name}.lock*"):
        left.unlink(missing_ok=True)
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        path.write_bytes(b"".join(lines[:-1]))


def _check_same(study: Any, settings: Mapping[str, Any], out: Path) -> None:
    """Raise if the search in the folder has other settings."""
    current = json.loads(json.dumps(dict(settings), default=str))
    saved = study.user_attrs.get("settings")
    if saved is None or not finished(study):  # nothing is lost
        study.set_user_attr("settings", current)
        study.set_user_attr("lr", None)
        return
    for name in dict.fromkeys([*saved, *current]):
        if saved.get(name) != current.get(name):
            setting = name.removeprefix("recipe.")
            raise ValueError(
                f"{out} holds a search with {setting}={saved.get(name)}, and this one has "
                f"{current.get(name)}: give another out, or the same {setting}"
            )
