"""Archives like the official ones, with images that a small network can tell apart."""

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
