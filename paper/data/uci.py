"""Data of two classes for logistic regression: three of the UCI repository, one of scikit-learn."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paper.arguments import check_choice
from paper.data.download import cache_folder, fetch

ARCHIVE = "https://archive.ics.uci.edu/ml/machine-learning-databases/statlog"
BREAST_CANCER = "breast cancer"


class Source(NamedTuple):
    """A data set of the repository: its file there, and by what to know it."""

    path: str
    rows: int
    columns: int

    @property
    def file(self) -> str:
        return Path(self.path).name


SOURCES = {
    "australian": Source("australian/australian.dat", rows=690, columns=14),
    "german": Source("german/german.data-numeric", rows=1000, columns=24),
    "heart": Source("heart/heart.dat", rows=270, columns=13),
}
TWO_CLASS_NAMES = (*SOURCES, BREAST_CANCER)


def two_classes(name: str, folder: Path | None = None) -> tuple[Tensor, Tensor]:
    """Features (N, d) as they are in the file, and N labels, each 0 or 1, in double precision.

    Args:
        name: one of `TWO_CLASS_NAMES`. Breast cancer comes with scikit-learn and needs no file.
        folder: where the files are, or a folder `uci` with them: NAME.csv, with a header and
            commas, or the repository's own. Without it they are downloaded, once, into the folder
            that $CSGMCMC_DATA names, or ~/.cache/csgmcmc.
    """
    check_choice("name", name, TWO_CLASS_NAMES)
    if name == BREAST_CANCER:
        from sklearn.datasets import load_breast_cancer  # noqa: PLC0415  (slow to import)

        columns, classes = load_breast_cancer(return_X_y=True)
        return torch.as_tensor(columns), torch.as_tensor(classes, dtype=torch.float64)
    path = _download(name) if folder is None else _find(name, folder)
    return _parse(name, path.read_bytes(), str(path))


def with_intercept(features: Tensor) -> Tensor:
    """A column of ones, then every column with mean 0 and standard deviation 1."""
    centred = features - features.mean(0)
    scaled = centred / centred.square().mean(0).sqrt()
    return torch.cat([torch.ones_like(scaled[:, :1]), scaled], dim=1)


def _find(name: str, folder: Path) -> Path:
    files = (f"{name}.csv", SOURCES[name].file)
    for candidate in (place / file for place in (folder, folder / "uci") for file in files):
        if candidate.exists():
            return candidate
    raise FileNotFoundError(
        f"{folder} has no {' or '.join(files)}, and no folder uci that has: give the folder of the "
        "UCI data"
    )


def _download(name: str) -> Path:
    """The repository's file in the cache folder."""
    source = SOURCES[name]
    address = f"{ARCHIVE}/{source.path}"
    path = cache_folder() / "uci" / source.file
    try:
        return fetch(address, path, check=lambda content: _parse(name, content, address))
    except ConnectionError as error:
        raise ConnectionError(
            f"{error}, or take --preset smoke, whose data come with scikit-learn"
        ) from error


def _parse(name: str, content: bytes, origin: str) -> tuple[Tensor, Tensor]:
    """The last column is the class: 0 and 1, or 1 and 2."""
    source = SOURCES[name]
    wanted = (source.rows, source.columns + 1)
    try:
        lines = content.decode().splitlines()
        if lines and "," in lines[0]:
            lines = lines[1:]  # the header
        table = np.array([line.replace(",", " ").split() for line in lines], dtype=float)
    except ValueError as error:
        raise ValueError(f"{origin} is not a table of numbers") from error
    classes = table[:, -1] if table.shape == wanted else np.zeros(1)
    labels = classes - classes.min()
    if set(labels) != {0, 1}:
        raise ValueError(
            f"{origin} is not the {name} data: they have {wanted[0]} rows of {wanted[1]} numbers, "
            "the last one of two classes"
        )
    return torch.as_tensor(table[:, :-1].copy()), torch.as_tensor(labels)
