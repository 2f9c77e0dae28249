"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from the official archives, read in place.

50,000 images to train on and 10,000 to test with, of 32x32 pixels in three colours. The archives
hold pickles, which may run any code: here only arrays and plain values are let through. Training
batches that are not there are passed over, so that a part of the official archive will do.
"""

import io
import pickle
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from paper.arguments import check_choice
from paper.data.download import cache_folder, fetch

MOST_BYTES = 2**28  # of a file, where the largest of CIFAR has 155 million
MOST_MEMBERS = 1000  # of an archive, where those of CIFAR have eight
MIRROR = "https://www.cs.toronto.edu/~kriz/"


class Layout(NamedTuple):
    """Where in the official archive what is."""

    archive: str
    md5: str
    folder: str
    train: tuple[str, ...]
    test: str
    labels: bytes
    classes: int


LAYOUTS = {
    "cifar10": Layout(
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        "cifar-10-batches-py",
        tuple(f"data_batch_{number}" for number in range(1, 6)),
        "test_batch",
        b"labels",
        10,
    ),
    "cifar100": Layout(
        "cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        "cifar-100-python",
        ("train",),
        "test",
        b"fine_labels",
        100,
    ),
}

# All that an array of numbers is made of, by its names in old and new versions of numpy.
ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("_codecs", "encode"),  # how Python 3 writes bytes for Python 2
}


@dataclass(frozen=True, eq=False)
class Images:
    """Images of shape (n, 3, height, width) with values from 0 to 255, and their labels."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def part(self, first: int, end: int) -> "Images":
        """The images from `first` up to, not with, `end`."""
        return Images(self.pixels[first:end], self.labels[first:end])


class Cifar(NamedTuple):
    """What to train on, what to test with, and how many classes there are."""

    train: Images
    test: Images
    classes: int


def cifar(name: str, folder: Path | None = None) -> Cifar:
    """CIFAR-10 ("cifar10") or CIFAR-100 ("cifar100", fine labels).

    `folder` holds the archive, or is or holds the folder that it unpacks to. Without it the
    official archive is downloaded once.
    """
    layout = LAYOUTS[check_choice("name", name, tuple(LAYOUTS))]
    if folder is None:
        place = cache_folder() / layout.archive
        fetch(MIRROR + layout.archive, place, layout.md5)
    else:
        place = _find(folder, layout)
    files = _unpacked(place, layout) if place.is_dir() else _packed(place, layout)
    train = [
        _images(files[batch], layout, f"{place}: {batch}")
        for batch in layout.train
        if batch in files
    ]
    if not train or layout.test not in files:
        wanted = layout.test if train else layout.train[0]
        raise FileNotFoundError(f"{place} has no {layout.folder}/{wanted}")
    test = _images(files[layout.test], layout, f"{place}: {layout.test}")
    together = Images(
        torch.cat([part.pixels for part in train]), torch.cat([part.labels for part in train])
    )
    return Cifar(together, test, layout.classes)


class RestrictedUnpickler(pickle.Unpickler):
    """Reads arrays and plain values; anything else that a pickle asks for is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, and may hold arrays and plain values only"
            )
        # Numpy has moved it, and warns of the old place.
        module = module.replace("numpy.core", "numpy._core")
        return super().find_class(module, name)


def _find(folder: Path, layout: Layout) -> Path:
    for place in (folder, folder / layout.folder):
        if (place / layout.test).is_file():
            return place
    if (folder / layout.archive).is_file():
        return folder / layout.archive
    raise FileNotFoundError(f"{folder} has neither {layout.archive} nor {layout.folder}")


def _unpacked(place: Path, layout: Layout) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in (*layout.train, layout.test):
        if (place / name).is_file():
            _check_size(place, name, (place / name).stat().st_size)
            found[name] = (place / name).read_bytes()
    return found


def _packed(place: Path, layout: Layout) -> dict[str, bytes]:
    names = {f"{layout.folder}/{name}": name for name in (*layout.train, layout.test)}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(place) as archive:
            for count, member in enumerate(archive):
                _check_size(place, member.name, member.size)
                if count >= MOST_MEMBERS:
                    raise ValueError(f"{place} holds more than {MOST_MEMBERS} files")
                name = names.get(member.name.removeprefix("./"))
                if name and not member.isfile():
                    raise ValueError(f"{place}: {member.name} must be a file, and is none")
                file = archive.extractfile(member) if name else None
                if name and file:
                    found[name] = file.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{place} is cut short or damaged: get it again") from error
    return found


def _check_size(place: Path, name: str, size: int) -> None:
    if size > MOST_BYTES:
        raise ValueError(f"{place}: {name} holds {size} bytes: it is not a file of CIFAR")


def _images(content: bytes, layout: Layout, where: str) -> Images:
    try:
        batch = RestrictedUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a pickle that is damaged may raise anything
        raise ValueError(f"{where} cannot be read: {error}") from error
    values = {
        key.encode() if isinstance(key, str) else key: value
        for key, value in (batch.items() if isinstance(batch, dict) else ())
    }
    pixels, labels = values.get(b"data"), values.get(layout.labels)
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.shape[1:] != (3072,)
        or not isinstance(labels, list)
        or not all(isinstance(one, int) and 0 <= one < layout.classes for one in labels)
        or len(labels) != len(pixels)
    ):
        raise ValueError(f"{where} does not hold images of 32x32 pixels with a label each")
    return Images(torch.tensor(pixels).reshape(-1, 3, 32, 32), torch.tensor(labels))
