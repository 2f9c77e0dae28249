"""What the defaults of the estimators were chosen by: log scores on several tables.

    python benchmarks/defaults.py --data DATA

A quarter of each table is set aside. Of the rest, three quarters are learned from, and each
candidate is scored on the fourth and compared with the defaults. Then the defaults and
scikit-learn's own estimators learn from all of the rest, and are scored on what was set aside. DATA
is a folder with the UCI tables; without it they are left out. Prints two tables, and writes them to
runs/bench/defaults.md.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from scipy.stats import norm, rankdata
from sklearn import datasets
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from paper.data import two_classes

CANDIDATES: dict[str, dict[str, Any]] = {
    "the defaults": {},
    "lr 0.03": {"lr": 0.03},
    "lr 0.3": {"lr": 0.3},
    "exploration 0.2": {"exploration": 0.2},
    "exploration 0.8": {"exploration": 0.8},
    "cycles 1, 40 draws": {"cycles": 1, "draws_per_cycle": 40},
    "cycles 8, 5 draws each": {"cycles": 8, "draws_per_cycle": 5},
    "prior_scale 1": {"prior_scale": 1.0},
    "prior_scale 4": {"prior_scale": 4.0},
    "batch_size 16": {"batch_size": 16},
    "batch_size 128": {"batch_size": 128},
}


class Rows(NamedTuple):
    """Some rows of a table."""

    features: NDArray[Any]
    targets: NDArray[Any]


class Table(NamedTuple):
    """A table: its name, whether its targets are classes, and its rows."""

    name: str
    classes: bool
    rest: Rows
    aside: Rows


def split(rows: Rows, classes: bool, seed: int) -> tuple[Rows, Rows]:
    """Three quarters and one, drawn at random, with the same share of each class."""
    numbers = np.arange(len(rows.targets))
    stratify = rows.targets if classes else None
    found = train_test_split(numbers, test_size=0.25, random_state=seed, stratify=stratify)
    large, small = (Rows(rows.features[part], rows.targets[part]) for part in found)
    return large, small


def tables(data: Path | None) -> list[Table]:
    """All tables: those that come with scikit-learn, and those of the folder."""
    digits, numerals = datasets.load_digits(return_X_y=True)
    found: dict[str, Any] = {
        "iris": datasets.load_iris(return_X_y=True),
        "wine": datasets.load_wine(return_X_y=True),
        "breast cancer": datasets.load_breast_cancer(return_X_y=True),
        "digits, 600 rows": (digits[:600], numerals[:600]),
        "two moons, noise 0.3": datasets.make_moons(200, noise=0.3, random_state=0),
    }
    for name in ("australian", "german", "heart") if data else ():
        found[name] = tuple(part.numpy() for part in two_classes(name, data))
    real: dict[str, Any] = {
        "diabetes": datasets.load_diabetes(return_X_y=True),
        "Friedman 1, noise 1": datasets.make_friedman1(300, noise=1.0, random_state=0),
        "Friedman 2, noise 100": datasets.make_friedman2(300, noise=100.0, random_state=0),
        "Friedman 3, noise 0.1": datasets.make_friedman3(300, noise=0.1, random_state=0),
    }
    kinds = [(found, True), (real, False)]
    return [
        Table(name, classes, *split(Rows(*both), classes, seed=1000))
        for kind, classes in kinds
        for name, both in kind.items()
    ]


def ours(table: Table, **options: Any) -> Any:
    kind = BayesianMLPClassifier if table.classes else BayesianMLPRegressor
    return kind(random_state=0, **options)


def score(estimator: Any, rows: Rows, held_out: Rows) -> float:
    """Mean log probability of held-out targets; densities are in units of the targets' std."""
    with warnings.catch_warnings():
        # scikit-learn's networks say so when their 200 epochs end before they have converged.
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(rows.features, rows.targets)
    if is_classifier(estimator):
        probs = estimator.predict_proba(held_out.features)
        return -float(log_loss(held_out.targets, probs, labels=np.unique(rows.targets)))
    try:
        mean, std = estimator.predict(held_out.features, return_std=True)
    except TypeError:  # it gives none: that of what it leaves of its own rows
        mean = estimator.predict(held_out.features)
        std = np.std(rows.targets - estimator.predict(rows.features))
    return float(norm.logpdf(held_out.targets, mean, std).mean() + np.log(rows.targets.std()))


def compare(everything: list[Table]) -> NDArray[np.float64]:
    """Score of each candidate (rows) on each table (columns)."""
    found = np.zeros((len(CANDIDATES), len(everything)))
    for column, table in enumerate(everything):
        rows, held_out = split(table.rest, table.classes, seed=0)
        for row, options in enumerate(CANDIDATES.values()):
            try:
                found[row, column] = score(ours(table, **options), rows, held_out)
            except ValueError:  # it has diverged
                found[row, column] = -np.inf
        shown = ", ".join(f"{one:.3f}" for one in found[:, column])
        Console().print(f"{table.name}: {shown}", highlight=False, soft_wrap=True)
    return found


def candidates_table(scores: NDArray[np.float64]) -> list[str]:
    """How much better than the defaults each candidate is, with standard error, and its rank."""
    gains = scores - scores[0]
    ranks = rankdata(-scores, axis=0).mean(1)
    failed = np.isinf(scores).sum(1)
    lines = [
        f"| | log score, above the defaults' (mean of {scores.shape[1]} tables) | mean rank |",
        "|---|---|---|",
    ]
    for name, gain, failures, rank in zip(CANDIDATES, gains, failed, ranks, strict=True):
        if failures:
            shown = f"diverges on {failures}"
        else:
            shown = f"{gain.mean():+.3f} ± {gain.std(ddof=1) / np.sqrt(len(gain)):.3f}"
        lines.append(f"| {name} | {shown if gain.any() else 0} | {rank:.1f} |")
    return lines


def references(table: Table) -> dict[str, Callable[[], Any]]:
    """scikit-learn's own: a network, a linear model, and a Gaussian process where it is quick."""
    if table.classes:
        return {
            "network": lambda: MLPClassifier(hidden_layer_sizes=(50,), random_state=0),
            "linear": lambda: LogisticRegression(max_iter=1000),
        }
    kernel = ConstantKernel() * RBF() + WhiteKernel()
    return {
        "network": lambda: MLPRegressor(hidden_layer_sizes=(50,), max_iter=1000, random_state=0),
        "linear": BayesianRidge,
        "process": lambda: GaussianProcessRegressor(kernel, normalize_y=True, random_state=0),
    }


def references_table(everything: list[Table]) -> list[str]:
    """Scores of the defaults and of scikit-learn's on what was set aside."""
    lines = [
        "| table | rows to learn from | here | `MLP` | linear | Gaussian process |",
        "|---|---|---|---|---|---|",
    ]
    for one in everything:
        known = references(one)
        found = {
            name: score(make_pipeline(StandardScaler(), make()), one.rest, one.aside)
            for name, make in known.items()
        }
        cells = [score(ours(one), one.rest, one.aside), found["network"], found["linear"]]
        shown = [f"{cell:.3f}" for cell in cells]
        shown.append(f"{found['process']:.3f}" if "process" in found else "")
        lines.append(f"| {one.name} | {len(one.rest.targets)} | {' | '.join(shown)} |")
    return lines


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--data", type=Path, help="folder with the UCI tables")
    everything = tables(arguments.parse_args().data)
    torch.set_num_threads(1)
    start = time.process_time()
    lines = [*candidates_table(compare(everything)), "", *references_table(everything)]
    lines += ["", f"In {(time.process_time() - start) / 60:.1f} minutes of one core."]
    path = Path("runs/bench/defaults.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    Console().print(
        "\n".join(lines), f"\nwritten: {path}", sep="\n", highlight=False, soft_wrap=True
    )


if __name__ == "__main__":
    main()
