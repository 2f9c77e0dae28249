"""The regressor's defaults on published benchmarks, beside what others are known or run to score.

    python -m benchmarks.tables_beside bde --data DATA [--models csgmcmc,catboost] [--seeds 5]
    python -m benchmarks.tables_beside uci --data DATA [--names boston,yacht] [--splits 20]
    python -m benchmarks.tables_beside show

`bde` follows the benchmark of sklearn-contrib-bde: a split of 80 and 20 percent (random_state 0),
columns and target standardised on the training part, and the score of a Gaussian with the predicted
mean and standard deviation on the standardised target. `uci` has the tables and splits of
Hernandez-Lobato and Adams, scored in the units of the target. DATA is a folder with bde/ and
tables/uci-splits.tar.gz. `show` puts the tables of these records, and of those of defaults.py, into
docs/howto/tables-beside.md and README.md, and draws a picture of the first benchmark.

The peers xgboost, catboost, ngboost and bde run in an environment of their own, .venv-peers-tables,
which `make bench-tables` makes from peers-tables.txt; it also runs all of this.

Nothing is chosen by these tables. Records are appended to benchmarks/results as they are found, so
that a run that was stopped goes on. Seconds are those of the processor, of one thread.
"""

import argparse
import copy
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

# Means of the five runs of each model that the authors of bde have published: RMSE and NLL.
PUBLISHED_BDE: dict[str, dict[str, tuple[float, float | None]]] = {
    "airfoil": {
        "bde": (0.122, -0.913),
        "TabPFN v2": (0.136, -0.934),
        "deep ensemble": (0.365, 0.176),
        "CatBoost": (0.239, 0.148),
        "XGBoost": (0.203, None),
        "random forest": (0.256, None),
        "linear": (0.660, None),
    },
    "bikesharing": {
        "bde": (0.226, -0.732),
        "TabPFN v2": (0.210, -0.686),
        "deep ensemble": (0.288, -0.455),
        "CatBoost": (0.265, -0.374),
        "XGBoost": (0.214, None),
        "random forest": (0.244, None),
        "linear": (0.780, None),
    },
}

Floats = NDArray[np.float64]
Rows = tuple[Floats, Floats, Floats, Floats]
"""Features and targets of the training part, then of the test part."""

PATIENCE = 30  # epochs without a better held-out score
RESULTS = Path(__file__).parent / "results"
DOCS = RESULTS.parents[1] / "docs"
OURS = "csgmcmc"
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


def deep_ensemble(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    """Five networks with a mean and a variance for each row (Lakshminarayanan et al., 2017).

    Each holds out a tenth of the rows, on which it stops early. The first one's decide on the lr.
    """
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    columns, targets = StandardScaler().fit(rows[0]), StandardScaler().fit(rows[1][:, None])
    table = [
        columns.transform(rows[0]),
        targets.transform(rows[1][:, None]),
        columns.transform(rows[2]),
    ]
    features, wanted, unseen = (torch.tensor(part, dtype=torch.float32) for part in table)

    def train(lr: float) -> tuple[float, Any]:
        order = torch.randperm(len(features))
        held_out, fitted = order.tensor_split([len(order) // 10])
        sizes = (features.shape[1], 64, 64, 64)
        layers: list[Any] = []
        for inputs, outputs in pairwise(sizes):
            layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
        network = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 2))
        optimizer = torch.optim.Adam(network.parameters(), lr=lr)

        def moments(inputs: Any) -> tuple[Any, Any]:
            mean, scale = network(inputs).split(1, dim=1)
            return mean, torch.nn.functional.softplus(scale) + 1e-6

        def nll(part: Any) -> Any:
            mean, variance = moments(features[part])
            return torch.nn.functional.gaussian_nll_loss(mean, wanted[part], variance)

        best, state, since = np.inf, network.state_dict(), 0
        while since < PATIENCE:
            for part in fitted[torch.randperm(len(fitted))].split(100):
                optimizer.zero_grad()
                nll(part).backward()
                optimizer.step()
            with torch.no_grad():
                found = nll(held_out).item()
            since += 1
            if found < best:
                best, since, state = found, 0, copy.deepcopy(network.state_dict())
        network.load_state_dict(state)
        with torch.no_grad():
            return best, moments(unseen)

    tried = {lr: train(lr) for lr in (3e-4, 1e-3, 3e-3, 1e-2)}
    lr = min(tried, key=lambda each: tried[each][0])
    members = [tried[lr][1], *(train(lr)[1] for _ in range(4))]
    means, variances = (torch.stack(part).double() for part in zip(*members, strict=True))
    mean, variance = means.mean(0), variances.mean(0) + means.var(0, correction=0)
    numbers = [part[:, 0].numpy() for part in (mean, variance.sqrt())]
    scale: Any = targets.scale_
    return targets.inverse_transform(numbers[0][:, None])[:, 0], numbers[1] * scale


def catboost(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    from catboost import CatBoostRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    options: Any = {"loss_function": "RMSEWithUncertainty", "thread_count": 1}
    options |= {"verbose": False, "allow_writing_files": False}
    found: Any = CatBoostRegressor(**options, random_seed=seed).fit(*rows[:2]).predict(rows[2])
    return found[:, 0], np.sqrt(found[:, 1])


def ngboost(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    from ngboost import NGBRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    found = NGBRegressor(verbose=False, random_state=seed).fit(*rows[:2]).pred_dist(rows[2])
    return found.params["loc"], found.params["scale"]


def xgboost(rows: Rows, seed: int) -> tuple[Floats, None]:
    from xgboost import XGBRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    model = XGBRegressor(n_jobs=1, random_state=seed).fit(*rows[:2])
    return model.predict(rows[2]), None


def bde(rows: Rows, seed: int) -> tuple[Floats, Floats]:
    from bde import BdeRegressor  # noqa: PLC0415  # pyright: ignore[reportMissingImports]

    options: dict[str, Any] = {"n_members": 10, "hidden_layers": [16, 16, 16, 16], "seed": seed}
    options |= {"warmup_steps": 50_000, "n_samples": 1000, "n_thinning": 10}
    model = BdeRegressor(**options).fit(*rows[:2])
    mean, std = model.predict(rows[2], mean_and_std=True)
    return np.asarray(mean), np.asarray(std)


MODELS: dict[str, Callable[[Rows, int], tuple[Floats, Floats | None]]] = {
    OURS: csgmcmc,
    "deep ensemble": deep_ensemble,
    "catboost": catboost,
    "ngboost": ngboost,
    "xgboost": xgboost,
    "bde": bde,
}


def bde_rows(data: Path, name: str) -> Rows:
    """A table of bde's benchmark, by its protocol."""
    import pandas as pd  # noqa: PLC0415

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


def scores(mean: Floats, std: Floats | None, target: Floats) -> dict[str, float | None]:
    """RMSE, NLL, and the share of targets in central intervals of 90% of a Gaussian."""
    rmse = float(np.sqrt(np.mean((target - mean) ** 2)))
    if std is None:
        return {"rmse": rmse, "nll": None, "inside": None}
    nll = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((target - mean) / std) ** 2
    inside = float((np.abs(target - mean) < 1.645 * std).mean())
    return {"rmse": rmse, "nll": float(nll.mean()), "inside": inside}


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
                file.write(json.dumps(record, allow_nan=False) + "\n")
            Console().print(record, highlight=False)
        yield record


def path_of(part: str) -> Path:
    return RESULTS / f"tables-{part}.jsonl"


def stored(part: str) -> list[dict[str, Any]]:
    path = path_of(part)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def mean_of(found: list[dict[str, Any]], field: str, digits: int = 3) -> str:
    """The mean over runs, and their standard deviation."""
    values = [one[field] for one in found]
    if None in values:
        return ""
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def runs(part: str, table: str, model: str = OURS) -> list[dict[str, Any]]:
    return [one for one in stored(part) if (one["table"], one["model"]) == (table, model)]


def bde_lines(name: str) -> list[str]:
    """A table of bde's benchmark: models that were run here, then those that were published."""
    lines = [f"| {name} | runs | RMSE | NLL | processor seconds |", "|---|---|---|---|---|"]
    for model in MODELS:
        own = runs("bde", name, model)
        if own:
            cells = [mean_of(own, "rmse"), mean_of(own, "nll"), mean_of(own, "seconds", 1)]
            lines.append(f"| {model} | {len(own)} | {' | '.join(cells)} |")
    for model, (rmse, nll) in PUBLISHED_BDE[name].items():
        shown = "" if nll is None else f"{nll:.3f}"
        lines.append(f"| {model}, as published | 5 | {rmse:.3f} | {shown} | |")
    return lines


def uci_lines() -> list[str]:
    """The NLLs on UCI's tables, with standard errors, and a sentence on how often ours is best."""
    lines = [f"| UCI, NLL | splits | {OURS} | seconds | {' | '.join(PUBLISHED)} |"]
    lines += ["|---" * (4 + len(PUBLISHED)) + "|"]
    near = tables = 0
    for index, name in enumerate(UCI):
        own = runs("uci", name)
        if not own:
            continue
        values, best = [one["nll"] for one in own], min(row[index] for row in PUBLISHED.values())
        mean, error = np.mean(values), np.std(values, ddof=1) / np.sqrt(len(own)) if own[1:] else 0
        near, tables = near + (mean <= best + error), tables + 1
        cells = [len(own), f"{mean:.3f}" + f" ± {error:.3f}" * bool(error)]
        cells += [mean_of(own, "seconds", 0).split()[0]]
        cells += [f"{row[index]:.2f}" for row in PUBLISHED.values()]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    best = f"{OURS} is best, or within one standard error of the best published, on {near} of these"
    return [*lines, "", f"{best} {tables} tables."]


def readme_lines() -> list[str]:
    """The NLLs on bde's benchmark alone."""
    models = {"catboost": "CatBoost", "ngboost": "NGBoost"}
    published = ("deep ensemble", "TabPFN v2", "bde")
    names = [OURS, *models.values(), *(f"{model}, published" for model in published)]
    lines = [f"| test NLL | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for table, rows in PUBLISHED_BDE.items():
        cells = [mean_of(runs("bde", table, model), "nll", 2) for model in (OURS, *models)]
        cells += [f"{rows[model][1]:.2f}" for model in published]
        lines.append(f"| {table} | {' | '.join(cells)} |")
    return lines


def defaults_lines() -> list[str]:
    """The tables of defaults.py, and the verdicts of `check`."""
    from benchmarks import defaults  # noqa: PLC0415

    path = RESULTS / "defaults-report.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    tables = [defaults.report_table(found, classes) for classes in (True, False)]
    return [*tables[0], "", *tables[1], "", defaults.verdicts(found)]


def show() -> None:
    """Put the tables into the pages, and draw the picture."""
    from benchmarks.table import put  # noqa: PLC0415

    page = DOCS / "howto" / "tables-beside.md"
    text = page.read_text()
    for name in PUBLISHED_BDE:
        text = put(text, name, "\n".join(bde_lines(name)))
    text = put(text, "uci", "\n".join(uci_lines()))
    page.write_text(put(text, "defaults", "\n".join(defaults_lines())))
    readme = DOCS.parent / "README.md"
    above, below = readme.read_text().split("| test NLL |")
    below = below[below.index("\n\n") :]
    readme.write_text(above + "\n".join(readme_lines()) + below)
    figure()


def figure() -> None:
    """Draw docs/images/tables-beside.png: NLL against seconds of the processor."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    picture, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, name in zip(axes, PUBLISHED_BDE, strict=True):
        for index, model in enumerate(MODELS):
            found = runs("bde", name, model)
            points = [(one["seconds"], one["nll"]) for one in found if one["nll"] is not None]
            if points:
                style = {"color": f"C{index}", "markersize": 5, "label": model}
                axis.semilogx(*zip(*points, strict=True), "o", **style)
        for model, line in (("bde", "--"), ("TabPFN v2", ":"), ("deep ensemble", "-.")):
            label = f"{model}, as published"
            axis.axhline(PUBLISHED_BDE[name][model][1], color="0.5", linestyle=line, label=label)
        axis.set(title=name, xlabel="seconds of the processor, fit and prediction")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("test NLL (less is better)")
    picture.legend(
        *axes[0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=6
    )
    picture.savefig(DOCS / "images" / "tables-beside.png", dpi=110)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("part", choices=["bde", "uci", "show"])
    arguments.add_argument("--data", type=Path)
    arguments.add_argument("--models", default=OURS)
    arguments.add_argument("--names", default=None)
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--splits", type=int, default=20)
    options = arguments.parse_args()
    if options.part == "show":
        show()
        return
    if options.data is None:
        arguments.error("--data is required")
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
