"""Tables that the estimators are compared on: scikit-learn's own, and UCI's where they are given.

Classes are 2 to 10, rows 50 to 5,000, and the noise is from none to a third of all labels.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split

from paper.data import two_classes


class Rows(NamedTuple):
    """Some rows of a table."""

    features: NDArray[Any]
    targets: NDArray[Any]


class Table(NamedTuple):
    """A table: its name, whether its targets are classes, and its rows."""

    name: str
    classes: bool
    rows: Rows


def tables(data: Path | None) -> list[Table]:
    """All tables; those of UCI are left out without the folder `data`."""
    found = [Table(name, True, Rows(*both)) for name, both in _classes(data).items()]
    return found + [Table(name, False, Rows(*both)) for name, both in _numbers().items()]


def split(rows: Rows, classes: bool, seed: int) -> tuple[Rows, Rows]:
    """Three quarters and one, drawn at random, with the same share of each class."""
    numbers = np.arange(len(rows.targets))
    stratify = rows.targets if classes else None
    found = train_test_split(numbers, test_size=0.25, random_state=seed, stratify=stratify)
    large, small = (Rows(rows.features[part], rows.targets[part]) for part in found)
    return large, small


def _classes(data: Path | None) -> dict[str, Any]:
    pixels, numerals = datasets.load_digits(return_X_y=True)
    some = np.random.default_rng(0).permutation(len(pixels))[:800]
    found: dict[str, Any] = {
        "iris": datasets.load_iris(return_X_y=True),
        "wine": datasets.load_wine(return_X_y=True),
        "breast cancer": datasets.load_breast_cancer(return_X_y=True),
        "digits, 800 rows": (pixels[some], numerals[some]),
    }
    for name in ("australian", "german", "heart") if data else ():
        found[name] = tuple(part.numpy() for part in two_classes(name, data))
    return {
        **found,
        "moons, noise 0.1, 100 rows": datasets.make_moons(100, noise=0.1, random_state=0),
        "moons, noise 0.3, 300 rows": datasets.make_moons(300, noise=0.3, random_state=0),
        "circles, noise 0.2": datasets.make_circles(400, noise=0.2, factor=0.5, random_state=0),
        "shells, 3 classes": datasets.make_gaussian_quantiles(
            n_samples=600, n_features=5, n_classes=3, random_state=0
        ),
        "blobs, 5 classes": datasets.make_blobs(
            400, n_features=4, centers=5, cluster_std=4.0, random_state=0
        ),
        "sphere in 10 dimensions": datasets.make_hastie_10_2(1000, random_state=0),
        "clusters, 50 rows": _clusters(50, flip=0.05, features=5),
        "clusters, 200 rows, a tenth flipped": _clusters(200, flip=0.2, features=20),
        "clusters, 500 rows, clean": _clusters(500, flip=0.0, features=10),
        "clusters, 800 rows, a third flipped": _clusters(800, flip=0.6, features=20),
        "clusters, 2000 rows, 10 classes": _clusters(2000, flip=0.05, features=15, classes=10),
        "clusters, 5000 rows": _clusters(5000, flip=0.1, features=10),
        "linear, 150 rows": _linear(150, features=8),
        "linear, 600 rows, 4 classes": _linear(600, features=12, classes=4),
    }


def _clusters(rows: int, flip: float, features: int, classes: int = 2) -> Any:
    """Three clusters a class, and labels of which a share `flip` is drawn anew."""
    informative = min(features, 8)
    return datasets.make_classification(
        rows,
        n_features=features,
        n_informative=informative,
        n_redundant=0,
        n_classes=classes,
        n_clusters_per_class=3,
        flip_y=flip,
        random_state=rows,
    )


def _linear(rows: int, features: int, classes: int = 2) -> Any:
    """Labels drawn from the probabilities of a linear model."""
    random = np.random.default_rng(rows)
    columns = random.normal(size=(rows, features))
    logits = columns @ random.normal(size=(features, classes)) * 0.7
    noise = random.gumbel(size=logits.shape)
    return columns, (logits + noise).argmax(1)


def _numbers() -> dict[str, Any]:
    x = np.sort(np.random.default_rng(0).uniform(-3, 3, 120))
    sine = np.sin(2 * x) + 0.1 * np.random.default_rng(1).normal(size=120)
    roll, along = datasets.make_swiss_roll(500, noise=0.5, random_state=0)
    return {
        "diabetes": datasets.load_diabetes(return_X_y=True),
        "Friedman 1, noise 1": datasets.make_friedman1(300, noise=1.0, random_state=0),
        "Friedman 2, noise 100": datasets.make_friedman2(300, noise=100.0, random_state=0),
        "Friedman 3, noise 0.1": datasets.make_friedman3(300, noise=0.1, random_state=0),
        "Friedman 1, 2000 rows": datasets.make_friedman1(2000, noise=1.0, random_state=1),
        "linear, 100 rows": datasets.make_regression(
            100, 10, n_informative=5, noise=30.0, random_state=0
        ),
        "sparse, 400 rows": datasets.make_sparse_uncorrelated(400, random_state=0),
        "sine, 120 rows": (x[:, None], sine),
        "swiss roll": (roll, along),
    }
