"""The defaults of the estimators beside their peers, and what the defaults were chosen by.

    python -m benchmarks.defaults report --data DATA [--splits 4] [--peers "linear,forest"]
    python -m benchmarks.defaults choose --data DATA [--splits 3]

A quarter of each table is set aside, at random and anew for each split. `report` fits the defaults
and scikit-learn's own estimators to the rest and scores them on what was set aside. `choose` never
looks at that: it fits each candidate for the classifier to three quarters of the rest, and scores
it on the fourth.
DATA is a folder with the UCI tables; without it they are left out.

Scores are appended to benchmarks/results/defaults-PART.jsonl as they are found, so that a run that
was stopped goes on; then the tables are printed. Seconds are those of the processor.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone, is_classifier
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.tables import Rows, Table, split, tables
from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor

RESULTS = Path(__file__).parent / "results"
OURS, ENSEMBLE = "csgmcmc", "5 MLPs"
PEERS = ("MLP", ENSEMBLE, "linear", "forest", "boosting", "Gaussian process")
MEMBERS = 5
FLOOR = 1e-6  # no probability counts as less: forests say 0
MOST_FOR_A_PROCESS = 1200  # rows times classes: the cost of a Gaussian process is cubic

CANDIDATES: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "temperature 1 for all": {"temperature": 1.0},
    "temperature 0.1 for all": {"temperature": 0.1},
    "temperature 0: no noise": {"temperature": 0.0},
    "one prior_scale, 1": {"prior_scale": 1.0, "temperature": 1.0},
    "one prior_scale, 3": {"prior_scale": 3.0, "temperature": 0.3},
    "1 chain": {"chains": 1},
    "1 cycle": {"cycles": 1},
    "lr 0.003": {"lr": 0.003},
    "lr 0.03": {"lr": 0.03},
    "batch_size 32": {"batch_size": 32},
    "draws_per_cycle 3": {"draws_per_cycle": 3},
    "hidden_layer_sizes (50,)": {"hidden_layer_sizes": (50,)},
    "activation relu": {"activation": "relu"},
}


def ours(table: Table, **options: Any) -> Any:
    kind = BayesianMLPClassifier if table.classes else BayesianMLPRegressor
    # The limit is of time on an idle machine, and seconds of the processor are what is reported.
    return kind(random_state=0, max_seconds=1e6, **options)


def peers(table: Table, rows: int) -> dict[str, Callable[[], Any]]:
    """scikit-learn's own, with its defaults; a Gaussian process where it is quick."""
    kernel = ConstantKernel() * RBF()
    if not table.classes:
        noisy = kernel + WhiteKernel()
        found: dict[str, Callable[[], Any]] = {
            "MLP": lambda: MLPRegressor(hidden_layer_sizes=(50,), max_iter=1000, random_state=0),
            "linear": BayesianRidge,
            "forest": lambda: RandomForestRegressor(random_state=0),
            "boosting": lambda: HistGradientBoostingRegressor(random_state=0),
        }
        if rows <= MOST_FOR_A_PROCESS:
            found["Gaussian process"] = lambda: GaussianProcessRegressor(
                noisy, normalize_y=True, random_state=0
            )
        return found
    found = {
        "MLP": lambda: MLPClassifier(hidden_layer_sizes=(50,), random_state=0),
        "linear": lambda: LogisticRegression(max_iter=2000),
        "forest": lambda: RandomForestClassifier(random_state=0),
        "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
    }
    classes = len(np.unique(table.rows.targets))
    if rows * (classes if classes > 2 else 1) <= MOST_FOR_A_PROCESS:
        found["Gaussian process"] = lambda: GaussianProcessClassifier(kernel, random_state=0)
    return found


def point_scores(estimator: Any, rows: Rows, held_out: Rows) -> NDArray[np.float64]:
    """Log probability of each held-out target; densities are in units of the targets' std."""
    with warnings.catch_warnings():
        # scikit-learn's networks and processes say so when they end before they have converged.
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(rows.features, rows.targets)
        if is_classifier(estimator):
            probs = estimator.predict_proba(held_out.features)
            columns = np.searchsorted(estimator.classes_, held_out.targets)
            return np.log(probs[np.arange(len(columns)), columns].clip(FLOOR))
        try:
            mean, std = estimator.predict(held_out.features, return_std=True)
        except TypeError:  # it gives none: that of its errors in cross-validation
            mean = estimator.predict(held_out.features)
            guesses = cross_val_predict(clone(estimator), rows.features, rows.targets)
            std = np.std(rows.targets - guesses)
    unit = rows.targets.std()
    return norm.logpdf(held_out.targets, mean, std).clip(np.log(FLOOR) - np.log(unit)) + np.log(
        unit
    )


def score_peers(
    table: Table, rows: Rows, held_out: Rows, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Mean log score and seconds of a fit of each of these peers."""
    found: dict[str, dict[str, float]] = {}
    for name, make in peers(table, len(rows.targets)).items():
        if name in names:
            found[name] = timed(make_pipeline(StandardScaler(), make()), rows, held_out)
    if ENSEMBLE not in names:
        return found
    start = time.process_time()
    alone = []
    for seed in range(MEMBERS):
        one = peers(table, len(rows.targets))["MLP"]().set_params(random_state=seed)
        alone.append(point_scores(make_pipeline(StandardScaler(), one), rows, held_out))
    together = float((logsumexp(alone, axis=0) - np.log(MEMBERS)).mean())
    found[ENSEMBLE] = {"score": together, "seconds": time.process_time() - start}
    return found


def timed(estimator: Any, rows: Rows, held_out: Rows) -> dict[str, float]:
    start = time.process_time()
    score = float(point_scores(estimator, rows, held_out).mean())
    return {"score": score, "seconds": time.process_time() - start}


def report(table: Table, number: int, names: Sequence[str]) -> dict[str, Any]:
    """Scores of the defaults and of these peers on what was set aside."""
    rest, aside = split(table.rows, table.classes, seed=1000 + number)
    estimator = ours(table)
    found = {OURS: timed(estimator, rest, aside), **score_peers(table, rest, aside, names)}
    verdict = estimator.check(aside.features, aside.targets)
    found[OURS] |= {"calibrated": verdict.calibrated.holds, "sampling": verdict.sampling.holds}
    return {"rows": len(rest.targets), "scores": found}


def choose(table: Table, number: int) -> dict[str, Any]:
    """Scores of the candidates on a part of what was not set aside."""
    rest, _ = split(table.rows, table.classes, seed=1000 + number)
    rows, held_out = split(rest, table.classes, seed=number)
    found = {}
    for name, options in CANDIDATES.items():
        try:
            found[name] = timed(ours(table, **options), rows, held_out)
        except ValueError as error:  # it has diverged
            found[name] = {"score": -np.inf, "seconds": 0.0, "error": str(error)}
    return {"rows": len(rows.targets), "scores": found}


def records(
    part: str, everything: list[Table], splits: int, names: Sequence[str] = PEERS
) -> Iterator[dict[str, Any]]:
    """One record for each table and split, small tables first; earlier ones are read."""
    path = RESULTS / f"defaults-{part}.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    known = {(one["table"], one["split"]): one for one in map(json.loads, lines)}
    for table in sorted(everything, key=lambda one: len(one.rows.targets)):
        for number in range(splits):
            record = known.get((table.name, number))
            if record is None:
                own = part == "report"
                measured = report(table, number, names) if own else choose(table, number)
                record = {"table": table.name, "split": number, "classes": table.classes}
                record |= measured
                with path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                shown = {name: round(one["score"], 3) for name, one in record["scores"].items()}
                Console().print(f"{table.name}, split {number}: {shown}", highlight=False)
            yield record


Scores = dict[str, dict[str, float]]
"""Mean score over splits, by table and estimator."""


def means(found: list[dict[str, Any]], classes: bool, field: str = "score") -> Scores:
    """Mean of a field over splits, by table and estimator."""
    values: dict[str, dict[str, list[float]]] = {}
    for record in found:
        if record["classes"] is classes:
            for name, one in record["scores"].items():
                values.setdefault(record["table"], {}).setdefault(name, []).append(one[field])
    return {
        table: {name: float(np.mean(each)) for name, each in row.items()}
        for table, row in values.items()
    }


def report_table(found: list[dict[str, Any]], classes: bool) -> list[str]:
    """One row for each table: the negative log scores; less is better."""
    scores = means(found, classes)
    names = [name for name in (OURS, *PEERS) if any(name in row for row in scores.values())]
    rows = {one["table"]: one["rows"] for one in found}
    seconds = means(found, classes, "seconds")
    lines = [f"| table | rows | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for table, row in scores.items():
        best = max(row.values())
        marks = {name: "**" if score == best else "" for name, score in row.items()}
        cells = [
            f"{marks[name]}{-row[name]:.3f}{marks[name]}" if name in row else "" for name in names
        ]
        lines.append(f"| {table} | {rows[table]} | {' | '.join(cells)} |")
    common = [[row[name] for row in scores.values() if name in row] for name in names]
    mean = [f"{-np.mean(each):.3f}" for each in common]
    lines.append(f"| mean | | {' | '.join(mean)} |")
    behind = [
        [(-row[OURS], -row[name]) for row in scores.values() if name in row] for name in names
    ]
    own = [f"{np.mean([ours for ours, _ in pairs]):.3f}" for pairs in behind]
    lines.append(f"| mean of {OURS} on the same tables | | {' | '.join(own)} |")
    wins = [f"{sum(ours < peer for ours, peer in pairs)} of {len(pairs)}" for pairs in behind[1:]]
    lines.append(f"| {OURS} is ahead on | | | {' | '.join(wins)} |")
    costs = [
        f"{np.mean([row[name] for row in seconds.values() if name in row]):.1f}" for name in names
    ]
    lines.append(f"| seconds of fit and prediction, one core | | {' | '.join(costs)} |")
    return lines


def verdicts(found: list[dict[str, Any]]) -> str:
    """How often `check` says that the defaults are calibrated and sample."""
    answers = {True: "yes", None: "unknown", False: "no"}
    counts = []
    for name in ("calibrated", "sampling"):
        given = Counter(answers[record["scores"][OURS][name]] for record in found)
        counts.append(f"{name}: {', '.join(f'{given[one]} {one}' for one in answers.values())}")
    return f"`check` of the {len(found)} fits of the defaults. {'; '.join(counts)}."


def candidates_table(found: list[dict[str, Any]]) -> list[str]:
    """How much better than the defaults each candidate is, with the standard error over tables."""
    scores = means(found, True).values()
    lines = [
        f"| | log score above the defaults', mean of {len(scores)} tables | ahead on |",
        "|---|---|---|",
    ]
    for name in CANDIDATES:
        gains = np.array([row[name] - row["the defaults"] for row in scores])
        error = gains.std(ddof=1) / np.sqrt(len(gains))
        shown = f"{gains.mean():+.3f} ± {error:.3f} | {(gains > 0).sum()}"
        if np.isinf(gains).any():
            shown = f"diverges on {np.isinf(gains).sum()} |"
        lines.append(f"| {name} | {'0 |' if name == 'the defaults' else shown} |")
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("part", choices=["report", "choose"])
    arguments.add_argument("--data", type=Path, help="folder with the UCI tables")
    arguments.add_argument("--splits", type=int, default=4)
    arguments.add_argument("--peers", default=",".join(PEERS))
    options = arguments.parse_args()
    torch.set_num_threads(1)
    everything = tables(options.data)
    if options.part == "choose":
        everything = [table for table in everything if table.classes]
    found = list(records(options.part, everything, options.splits, options.peers.split(",")))
    if options.part == "choose":
        lines = candidates_table(found)
    else:
        lines = [*report_table(found, True), "", *report_table(found, False), "", verdicts(found)]
    Console().print("\n".join(lines), highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
