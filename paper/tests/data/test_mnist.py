"""MNIST and notMNIST from idx files, which the tests make; the real ones where they are at hand."""

import gzip
import hashlib
import io
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

from paper.data import mnist, not_mnist
from paper.data.download import cache_folder, fetch
from paper.data.mnist import MD5, TEST, TRAIN, read_idx

SHARED = Path(__file__).parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (SHARED / "mnist").is_dir() or not (SHARED / "notmnist").is_dir(), reason="no data at hand"
)


def idx(array: np.ndarray) -> bytes:
    """The file of an array: magic number, sizes in big-endian order, bytes."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(idx(array)))


@pytest.fixture
def root(tmp_path):
    """A folder with 3 digits to train on, 2 to test with, and 4 letters."""
    images = np.arange(3 * 784).reshape(3, 28, 28) % 256
    write(tmp_path / "data/mnist" / TRAIN[0], images)
    write(tmp_path / "data/mnist" / TRAIN[1], np.array([5, 0, 9]))
    write(tmp_path / "data/mnist" / TEST[0], images[:2])
    write(tmp_path / "data/mnist" / TEST[1], np.array([1, 2]))
    write(tmp_path / "data/notmnist" / TEST[0], np.full((4, 28, 28), 51))
    return tmp_path / "data"


@pytest.mark.parametrize("below", ["", "mnist"])
def test_the_folder_is_the_one_above_or_the_one_of_mnist(root, below):
    data, letters = mnist(root / below), not_mnist(root / below)
    images, labels = data.train.tensors
    assert images.shape == (3, 1, 28, 28)
    assert images.dtype == torch.float32
    assert images[0, 0, 0, :3].tolist() == pytest.approx([0, 1 / 255, 2 / 255])
    assert images.max() == 1
    assert labels.tolist() == [5, 0, 9]
    assert labels.dtype == torch.int64
    assert data.test.tensors[0].equal(images[:2])
    assert letters.shape == (4, 1, 28, 28)
    assert letters.unique().tolist() == pytest.approx([0.2])


def test_a_relative_folder_of_mnist_has_letters_beside_it(root, monkeypatch):
    monkeypatch.chdir(root / "mnist")
    assert len(not_mnist(Path())) == 4


def test_the_cache_is_used_without_a_folder(root, monkeypatch):
    monkeypatch.setenv("CSGMCMC_DATA", str(root))
    assert len(mnist().train) == 3
    assert len(not_mnist()) == 4


def test_what_is_missing_is_named(root):
    (root / "mnist" / TEST[1]).unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte\.gz is missing"):
        mnist(root)
    (root / "notmnist" / TEST[0]).unlink()
    (root / "notmnist").rmdir()
    with pytest.raises(FileNotFoundError, match=r"notMNIST has no official .* --data"):
        not_mnist(root)


def test_what_is_damaged_is_named(tmp_path):
    whole = idx(np.zeros((2, 28, 28)))
    path = tmp_path / "images.gz"
    for content, words in (
        (gzip.compress(whole)[:-12], "cut short or damaged"),
        (b"<html>", "cut short or damaged"),
        (gzip.compress(whole[:-1]), "1567 bytes of data where its header says 2 x 28 x 28"),
        (gzip.compress(b"\x00\x00\x0d" + whole[3:]), "not an idx file of unsigned bytes"),
        (gzip.compress(whole[:7]), "not an idx file of unsigned bytes"),
        (b"", "not an idx file of unsigned bytes"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"images.gz .*{words}"):
            read_idx(path)


def test_images_and_labels_must_fit(root):
    write(root / "mnist" / TEST[1], np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="one label for each of 2 images"):
        mnist(root)
    write(root / "mnist" / TEST[0], np.zeros((2, 27, 28)))
    with pytest.raises(ValueError, match="28x28"):
        mnist(root)


@pytest.fixture
def server(monkeypatch):
    """Stands for the network: gives the files of a dictionary, and counts the requests."""
    files: dict[str, bytes] = {}
    requests: list[str] = []

    def urlopen(url: str, timeout: float) -> io.BytesIO:
        requests.append(url)
        if url not in files:
            raise urllib.error.URLError("no network")
        return io.BytesIO(files[url])

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return files, requests


def test_downloads_are_checked_and_made_once(server, tmp_path):
    files, requests = server
    files["https://x/a.gz"] = b"content"
    good = hashlib.md5(b"content", usedforsecurity=False).hexdigest()
    path = tmp_path / "deep" / "a.gz"
    with pytest.raises(ValueError, match="checksum"):
        fetch("https://x/a.gz", path, md5="0" * 32)
    assert not path.parent.exists()
    for _ in range(2):
        assert fetch("https://x/a.gz", path, good).read_bytes() == b"content"
    assert len(requests) == 2
    assert list(path.parent.iterdir()) == [path]  # nothing half-made is left


def test_a_download_can_be_checked_by_what_it_holds(server, tmp_path):
    files, _ = server
    files["https://x/a.csv"] = b"<html>"

    def check(content: bytes) -> None:
        if not content.startswith(b"1,2"):
            raise ValueError("not the table")

    path = tmp_path / "deep" / "a.csv"
    with pytest.raises(ValueError, match="not the table"):
        fetch("https://x/a.csv", path, check=check)
    assert not path.parent.exists()
    files["https://x/a.csv"] = b"1,2"
    assert fetch("https://x/a.csv", path, check=check).read_bytes() == b"1,2"


def test_without_network_the_user_is_told_of_data(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CSGMCMC_DATA", str(tmp_path))
    with pytest.raises(ConnectionError, match=r"no network.*train-images.*--data"):
        mnist()
    assert list(tmp_path.iterdir()) == []


def test_the_cache_folder(monkeypatch):
    monkeypatch.delenv("CSGMCMC_DATA", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "csgmcmc"
    monkeypatch.setenv("CSGMCMC_DATA", "~/data")
    assert cache_folder() == Path.home() / "data"


@needs_data
def test_the_real_files():
    data, letters = mnist(SHARED), not_mnist(SHARED)
    assert data.train.tensors[0].shape == (60_000, 1, 28, 28)
    assert data.train.tensors[1].bincount().tolist() == [
        5923,
        6742,
        5958,
        6131,
        5842,
        5421,
        5918,
        6265,
        5851,
        5949,
    ]  # as the data set's authors count them
    assert len(data.test) == 10_000
    assert data.train.tensors[0].mean().item() == pytest.approx(0.1307, abs=1e-4)
    assert letters.shape == (10_000, 1, 28, 28)
    assert set(MD5) == {*TRAIN, *TEST}


def test_sizes_have_limits(tmp_path, monkeypatch):
    path = tmp_path / "images.gz"
    monkeypatch.setattr(sys.modules["paper.data.mnist"], "MOST_BYTES", 1000)
    path.write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        read_idx(path)
    # Dimensions whose product overflows 64 bits to the number of bytes that there are.
    header = b"\x00\x00\x08\x04" + np.array([2**16] * 4, ">u4").tobytes()
    path.write_bytes(gzip.compress(header))
    with pytest.raises(ValueError, match="get it again"):
        read_idx(path)
