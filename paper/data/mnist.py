"""MNIST, and the letters of notMNIST, from files in the idx format.

MNIST (LeCun, Cortes and Burges) is 60,000 digits to train on and 10,000 to test with. notMNIST
(Bulatov 2011) is letters A to J in many fonts, of the same size: what a network of digits has
never seen.
"""

import gzip
import math
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from paper.data.download import cache_folder, fetch

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
MD5 = {  # of the compressed files
    TRAIN[0]: "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    TRAIN[1]: "d53e105ee54ea40749a09fcbcd1e9432",
    TEST[0]: "9fb629c4189551a2d022fa330f9573f3",
    TEST[1]: "ec29112dd5afa0611ce80d1b7f02629c",
}
MOST_BYTES = 2**28  # of a file without its compression, where those of MNIST have 2**26
UNSIGNED_BYTES = b"\x00\x00\x08"  # how a file of them begins; the number of dimensions follows


class Mnist(NamedTuple):
    """Images of shape (1, 28, 28) with values from 0 to 1, and labels."""

    train: TensorDataset
    test: TensorDataset


def mnist(folder: Path | None = None) -> Mnist:
    """MNIST from `folder`, or from its folder mnist; downloaded where no folder is named."""
    if folder is None:
        place = cache_folder() / "mnist"
        for name, md5 in MD5.items():
            fetch(MIRROR + name, place / name, md5)
    else:
        place = _inner(folder, "mnist") or folder
    return Mnist(*(_pairs(place / images, place / labels) for images, labels in (TRAIN, TEST)))


def not_mnist(folder: Path | None = None) -> Tensor:
    """Images of notMNIST, like those of `mnist`; from `folder`/notmnist, or one beside `folder`."""
    base = cache_folder() if folder is None else folder
    place = _inner(base, "notmnist") or _inner(base.absolute().parent, "notmnist")
    if place is None:
        raise FileNotFoundError(
            f"notMNIST has no official idx files to download: put {TEST[0]} made from it into "
            f"{base / 'notmnist'}, or name the folder above it with --data"
        )
    return _images(place / TEST[0])


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in a compressed idx file of unsigned bytes."""
    try:
        with gzip.open(path) as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is cut short or damaged: get it again") from error
    if len(content) > MOST_BYTES:
        raise ValueError(f"{path} holds more than {MOST_BYTES} bytes: it is not a file of MNIST")
    if content[:3] != UNSIGNED_BYTES or len(content) < 4 or len(content) < 4 + 4 * content[3]:
        raise ValueError(f"{path} is not an idx file of unsigned bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist()
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{path} holds {len(content) - start} bytes of data where its header says "
            f"{' x '.join(map(str, shape))}: get it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _inner(folder: Path, name: str) -> Path | None:
    return folder / name if (folder / name).is_dir() else None


def _pairs(image_path: Path, label_path: Path) -> TensorDataset:
    images, labels = _images(image_path), read_idx(label_path)
    if labels.shape != (len(images),):
        raise ValueError(f"{label_path} does not have one label for each of {len(images)} images")
    return TensorDataset(images, torch.as_tensor(labels.astype(np.int64)))


def _images(path: Path) -> Tensor:
    pixels = read_idx(path)
    if pixels.ndim != 3 or pixels.shape[1:] != (28, 28):
        raise ValueError(
            f"{path} does not hold images of 28x28 pixels: it has shape {pixels.shape}"
        )
    return torch.as_tensor(pixels.astype(np.float32) / 255).unsqueeze(1)
