"""The record of a search: an Optuna study in a file, which a stopped search goes on from."""

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from csgmcmc.draws.lock import acquire_lock
from csgmcmc.errors import LockedError
from csgmcmc.integrations.missing import require

JOURNAL = "trials.jsonl"
STARTUP_TRIALS = 8  # at random, before the sampler learns from them


@dataclass(frozen=True)
class Trial:
    """One trial of a search.

    Attributes:
        number: from 1, in the order in which trials ended.
        cycles: M.
        exploration: beta.
        temperature: T.
        score: mean log score on the validation data, as far as it came; NaN if it came to none.
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
    """Optuna, which is slow to import, or an `ImportError` that says how to install it."""
    return require("optuna", "tune")


@contextmanager
def open_study(out: Path, settings: Mapping[str, Any]) -> Iterator[Any]:
    """The study in a folder, new or gone on with; of a stopped search the last trial is dropped."""
    optuna = import_optuna()
    out.mkdir(parents=True, exist_ok=True)
    try:
        lock = acquire_lock(out / "search.lock", "the search")
    except LockedError as error:
        raise ValueError(f"another search is running in {out}: give another out") from error
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = _open(optuna, out)
        _check_same(study, settings, out)
        states = optuna.trial.TrialState
        for trial in study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            study.tell(trial.number, state=states.FAIL)  # of a process that was killed
        yield study
    finally:
        optuna.logging.set_verbosity(before)
        lock.release()


def ask(study: Any, seed: int, first: Mapping[str, Any]) -> Any:
    """The next trial of a study, which depends only on the seed and on the trials before it.

    So a search that was stopped goes on as if it had not been. `first` is what is tried first.
    """
    optuna = import_optuna()
    number = len(finished(study))
    waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
    if number == 0 and not waiting:
        study.enqueue_trial(dict(first))
    study.sampler = optuna.samplers.TPESampler(seed=seed + number, n_startup_trials=STARTUP_TRIALS)
    # Of several trials that have come as far: one that is worse than half of them is given up.
    study.pruner = optuna.pruners.MedianPruner(
        n_startup_trials=4, n_warmup_steps=20, n_min_trials=3
    )
    return study.ask()


def finished(study: Any) -> list[Any]:
    """The trials that count: those that ended by themselves."""
    states = import_optuna().trial.TrialState
    return study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED))


def trials_of(study: Any) -> list[Trial]:
    """The trials of a study that count, as plain values."""
    return [_plain(number, trial) for number, trial in enumerate(finished(study), start=1)]


def read_trials(out: str | Path) -> list[Trial]:
    """The trials of the search in a folder, as `tune` has left them."""
    path = Path(out) / JOURNAL
    if not path.exists():
        raise ValueError(f"{out} holds no search: it has no {JOURNAL}")
    optuna = import_optuna()
    return trials_of(optuna.load_study(study_name="csgmcmc", storage=_storage(optuna, path)))


def _plain(number: int, trial: Any) -> Trial:
    complete = trial.state.name == "COMPLETE"
    reported = trial.intermediate_values
    last = max(reported, default=0)
    return Trial(
        number=number,
        cycles=trial.params["cycles"],
        exploration=trial.params["exploration"],
        temperature=trial.params["temperature"],
        score=trial.value if complete else reported.get(last, math.nan),
        outcome="complete" if complete else trial.user_attrs.get("outcome", "pruned"),
        used=1.0 if complete else trial.user_attrs.get("used", last / 100),
    )


def _open(optuna: Any, out: Path) -> Any:
    path = out / JOURNAL
    _mend(path)
    return optuna.create_study(
        study_name="csgmcmc",
        storage=_storage(optuna, path),
        direction="maximize",
        load_if_exists=True,
    )


def _storage(optuna: Any, path: Path) -> Any:
    with warnings.catch_warnings(
        action="ignore", category=optuna.exceptions.ExperimentalWarning
    ):  # journals were experimental in Optuna 3 and early 4
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


def _mend(path: Path) -> None:
    """Take away what a process that was killed in the middle of writing has left.

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
    """Refuse to go on with a search that had other settings."""
    current = _flat(json.loads(json.dumps(dict(settings), default=str)))
    saved = study.user_attrs.get("settings")
    if saved is None or not finished(study):  # then nothing is lost
        study.set_user_attr("settings", current)
        study.set_user_attr("lr", None)
        return
    for name in dict.fromkeys([*saved, *current]):
        if saved.get(name) != current.get(name):
            said = name.removeprefix("recipe.")
            raise ValueError(
                f"{out} holds a search with {said}={saved.get(name)}, and this one has "
                f"{current.get(name)}: give another out, or the same {said}"
            )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose values are dictionaries, as one: `recipe.lr`."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        inner = value if isinstance(value, Mapping) else {"": value}
        flat.update({f"{name}.{key}".rstrip("."): each for key, each in inner.items()})
    return flat
