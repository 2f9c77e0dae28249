"""Archives like the official ones, with images that a small network can tell apart."""

import gzip
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np

from paper.data.cifar import LAYOUTS


def make_batch(count: int, classes: int, labels: bytes, seed: int) -> bytes:
    """A pickle of images whose colour and brightness tell their class, under noise."""
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(count) % classes)
    means = np.random.default_rng(0).uniform(60, 190, (classes, 3, 1, 1))
    pixels = means[truth] + rng.normal(0, 40, (count, 3, 32, 32))
    data = pixels.clip(0, 255).astype(np.uint8).reshape(count, -1)
    return pickle.dumps({b"data": data, labels: truth.tolist()}, protocol=2)


def write_cifar(folder: Path, name: str, *, train: int = 120, test: int = 60) -> Path:
    """The archive of `name` in `folder`; of CIFAR-10 with the first two training batches."""
    layout = LAYOUTS[name]
    parts = layout.train[:2]
    batches = {**dict.fromkeys(parts, train // len(parts)), layout.test: test}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / layout.archive
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for seed, (part, count) in enumerate(batches.items()):
            add(
                archive,
                f"{layout.folder}/{part}",
                make_batch(count, layout.classes, layout.labels, seed),
            )
    return path


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Put a file into an archive."""
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def write_mnist(folder: Path, *, train: int = 120, test: int = 60) -> None:
    """Files of MNIST and of notMNIST in `folder`; each class is bright in rows of its own."""
    rng = np.random.default_rng(0)
    for place, part, count in (("mnist", "train", train), ("mnist", "t10k", test),
                               ("notmnist", "t10k", test)):  # fmt: skip
        truth = rng.permutation(np.arange(count) % 10).astype(np.uint8)
        pixels = rng.integers(0, 120, (count, 28, 28)).astype(np.uint8)
        rows = np.arange(28) // 3
        pixels[rows[None] == truth[:, None]] += 100
        _write_idx(folder / place / f"{part}-images-idx3-ubyte.gz", pixels)
        _write_idx(folder / place / f"{part}-labels-idx1-ubyte.gz", truth)


def _write_idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = b"\x00\x00\x08" + bytes([array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))
