"""The regressor's defaults on published benchmarks, beside what others are known or run to score.

    python benchmarks/tables_beside.py bde --data DATA [--models csgmcmc,catboost] [--seeds 5]
    python benchmarks/tables_beside.py uci --data DATA [--names boston,yacht] [--splits 20]
    python benchmarks/tables_beside.py show --data DATA

`bde` follows the benchmark of sklearn-contrib-bde: a split of 80 and 20 percent (random_state 0),
columns and target standardised on the training part, and the score of a Gaussian with the predicted
mean and standard deviation on the standardised target. Peers are those that are installed: xgboost,
catboost, ngboost and sklearn-contrib-bde, best in an environment of their own. `uci` has the tables
and splits of Hernandez-Lobato and Adams, scored in the units of the target. `show` writes the
tables. DATA is a folder with bde/ and tables/uci-splits.tar.gz.

Nothing is chosen by these tables. Records are appended to benchmarks/results as they are found, so
that a run that was stopped goes on. Seconds are those of the processor, of one thread.
"""

import argparse
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats, Floats, Floats]
"""Features and targets of the training part, then of the test part."""

RESULTS = Path(__file__).parent / "results"
UCI = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
FOLDERS = {
    "boston": "bostonHousing",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine": "wine-quality-red",
}
# Test NLL, as collected in a table of the WGBoost paper; that all splits are the same was not
# checked. MC dropout: Gal's repository.
PUBLISHED = {
    "MC dropout": (2.40, 2.93, 1.21, -1.14, -4.45, 2.80, 2.87, 0.93, 1.25),
    "deep ensemble": (2.41, 3.06, 1.38, -1.20, -5.63, 2.79, 2.83, 0.94, 1.18),
    "concrete dropout": (2.72, 3.51, 2.30, -0.65, -5.87, 2.75, 2.81, 1.70, 1.75),
    "NGBoost": (2.43, 3.04, 0.60, -0.49, -5.34, 2.79, 2.81, 0.91, 0.20),
    "evidential": (2.35, 3.01, 1.39, -1.24, -5.73, 2.81, 2.63, 0.89, 1.03),
    "WGBoost": (2.47, 2.83, 0.53, -0.44, -5.47, 2.60, 2.70, 0.95, 0.16),
}


def csgmcmc(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    import torch  # noqa: PLC0415  (peers need none of these)

    from csgmcmc.estimators import BayesianMLPRegressor  # noqa: PLC0415

    torch.set_num_threads(1)
    # The limit is of time on an idle machine, and processor seconds are what is reported.
    model = BayesianMLPRegressor(random_state=seed, max_seconds=1e6).fit(*rows[:2])
    mean, std = model.predict(rows[2], return_std=True)
    return mean, std


def catboost(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    from catboost import CatBoostRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    options = {"loss_function": "RMSEWithUncertainty", "thread_count": 1, "verbose": False}
    found = CatBoostRegressor(**options, random_seed=seed).fit(*rows[:2]).predict(rows[2])
    return found[:, 0], np.sqrt(found[:, 1])


def ngboost(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    from ngboost import NGBRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    found = NGBRegressor(verbose=False, random_state=seed).fit(*rows[:2]).pred_dist(rows[2])
    return found.params["loc"], found.params["scale"]


def xgboost(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    from xgboost import XGBRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    model = XGBRegressor(n_jobs=1, random_state=seed).fit(*rows[:2])
    mean = model.predict(rows[2])
    return mean, np.full(len(mean), np.nan)


def bde(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    from bde import BdeRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    options: dict[str, Any] = {"n_members": 10, "hidden_layers": [16, 16, 16, 16], "seed": seed}
    options |= {"warmup_steps": 50_000, "n_samples": 1000, "n_thinning": 10}
    model = BdeRegressor(**options).fit(*rows[:2])
    mean, std = model.predict(rows[2], mean_and_std=True)
    return np.asarray(mean), np.asarray(std)


MODELS: dict[str, Callable[[Rows, int], tuple[Floats, Floats]]] = {
    "csgmcmc": csgmcmc,
    "catboost": catboost,
    "ngboost": ngboost,
    "xgboost": xgboost,
    "bde": bde,
}


def bde_rows(data: Path, name: str) -> Rows:
    """A table of bde's benchmark, by its protocol."""
    if name == "airfoil":
        found = pd.read_csv(data / "bde" / "airfoil.csv")
        columns, target = found.iloc[:, :-1].to_numpy(float), found.iloc[:, -1].to_numpy(float)
    else:
        found = pd.read_csv(data / "bde" / "bikesharing-hour.csv")
        target = found["cnt"].to_numpy(float)
        left_out = ["cnt", "casual", "registered", "instant", "dteday"]
        columns = found.drop(columns=left_out).to_numpy(float)
    parts: Any = train_test_split(columns, target, test_size=0.2, random_state=0)
    features: Any = StandardScaler().fit(parts[0])
    targets: Any = StandardScaler().fit(parts[2][:, None])
    train, test = (features.transform(part) for part in parts[:2])
    values, others = (targets.transform(part[:, None]).ravel() for part in parts[2:])
    return train, values, test, others


def uci_rows(data: Path, name: str, split: int) -> Rows:
    """A table of Hernandez-Lobato and Adams, with one of its splits."""
    with tarfile.open(data / "tables" / "uci-splits.tar.gz") as archive:

        def numbers(file: str) -> Floats:
            path = f"./{FOLDERS.get(name, name)}/data/{file}.txt"
            stored = archive.extractfile(path)
            assert stored is not None, path
            return np.loadtxt(stored)

        everything = numbers("data")
        features, target = numbers("index_features").astype(int), int(numbers("index_target"))
        train, test = (numbers(f"index_{part}_{split}").astype(int) for part in ("train", "test"))
    columns, values = everything[:, features], everything[:, target]
    return columns[train], values[train], columns[test], values[test]


def scores(mean: Floats, std: Floats, target: Floats) -> dict[str, float]:
    """RMSE, NLL, and the share of targets in central intervals of 90% of a Gaussian."""
    nll = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((target - mean) / std) ** 2
    return {
        "rmse": float(np.sqrt(np.mean((target - mean) ** 2))),
        "nll": float(nll.mean()),
        "inside": float((np.abs(target - mean) < 1.645 * std).mean()),
    }


def records(part: str, jobs: list[tuple[str, str, int]], data: Path) -> Iterator[dict[str, Any]]:
    """One record for each table, model and number of a seed or split; known ones are read."""
    known = {(one["table"], one["model"], one["number"]): one for one in stored(part)}
    for job in jobs:
        record = known.get(job)
        if record is None:
            name, model, number = job
            rows = bde_rows(data, name) if part == "bde" else uci_rows(data, name, number)
            start = time.process_time()
            mean, std = MODELS[model](rows, number if part == "bde" else 0)
            seconds = round(time.process_time() - start, 1)
            record = {"table": name, "model": model, "number": number, "rows": len(rows[0])}
            record |= {**scores(mean, std, rows[3]), "seconds": seconds}
            with path_of(part).open("a") as file:
                file.write(json.dumps(record) + "\n")
            Console().print(record, highlight=False)
        yield record


def path_of(part: str) -> Path:
    return RESULTS / f"tables-{part}.jsonl"


def stored(part: str) -> list[dict[str, Any]]:
    path = path_of(part)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def mean_of(found: list[dict[str, Any]], field: str, digits: int = 3) -> str:
    values = np.array([one[field] for one in found])
    error = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return "-" if np.isnan(values).any() else f"{values.mean():.{digits}f}{error}"


def show(data: Path) -> None:
    """Print the tables: those that were run here, then those that were published."""
    lines = []
    for name in ("airfoil", "bikesharing"):
        lines += [
            "",
            f"| {name} | runs | RMSE | NLL | processor seconds |",
            "|---|---|---|---|---|",
        ]
        for model in MODELS:
            own = [one for one in stored("bde") if (one["table"], one["model"]) == (name, model)]
            if own:
                cells = [mean_of(own, "rmse"), mean_of(own, "nll"), mean_of(own, "seconds", 0)]
                lines.append(f"| {model} | {len(own)} | {' | '.join(cells)} |")
        published = pd.read_csv(data / "bde" / f"{name}-published.csv")
        for model, rows in published.groupby("model"):
            cells = [f"{rows[field].mean():.3f}" for field in ("rmse", "nll_default")]
            lines.append(f"| {model}, as published | {len(rows)} | {' | '.join(cells)} | |")
    lines += ["", f"| UCI, NLL | splits | csgmcmc | {' | '.join(PUBLISHED)} |"]
    lines += ["|---" * (3 + len(PUBLISHED)) + "|"]
    for index, name in enumerate(UCI):
        own = [one for one in stored("uci") if one["table"] == name]
        if own:
            cells = [f"{scores[index]:.2f}" for scores in PUBLISHED.values()]
            lines.append(f"| {name} | {len(own)} | {mean_of(own, 'nll')} | {' | '.join(cells)} |")
    Console().print("\n".join(lines), highlight=False, soft_wrap=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("part", choices=["bde", "uci", "show"])
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--models", default="csgmcmc")
    arguments.add_argument("--names", default=None)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--splits", type=int, default=20)
    options = arguments.parse_args()
    if options.part == "show":
        show(options.data)
        return
    tables = ("airfoil", "bikesharing") if options.part == "bde" else UCI
    names = options.names.split(",") if options.names else tables
    numbers = range(options.seeds if options.part == "bde" else options.splits)
    jobs = [
        (name, model, number)
        for number in numbers
        for model in options.models.split(",")
        for name in names
        if name != "protein" or number < 5
    ]
    for _ in records(options.part, jobs, options.data):
        pass


if __name__ == "__main__":
    main()
