"""CIFAR from archives that the tests make; the real ones where they are at hand."""

import io
import os
import pickle
import sys
import tarfile
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

from paper.data import Images, PlainBatches, Standard, TrainingBatches, cifar, crop_and_flip
from paper.data.cifar import LAYOUTS
from paper.tests.data.archives import add, make_batch, write_cifar

SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_archive_and_the_unpacked_folder_are_the_same(tmp_path, name):
    path = write_cifar(tmp_path, name)
    packed = cifar(name, tmp_path)
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "out", filter="data")
    for folder in (tmp_path / "out", tmp_path / "out" / LAYOUTS[name].folder):
        unpacked = cifar(name, folder)
        assert unpacked.train.pixels.equal(packed.train.pixels)
        assert unpacked.test.labels.equal(packed.test.labels)
    assert packed.train.pixels.shape == (120, 3, 32, 32)
    assert packed.train.pixels.dtype == torch.uint8
    assert len(packed.test) == 60
    assert packed.classes == LAYOUTS[name].classes
    assert packed.train.labels.max() < packed.classes


def test_pixels_are_in_the_official_order(tmp_path):
    """Red, green, blue, each row by row."""
    layout = LAYOUTS["cifar10"]
    data = np.zeros((1, 3072), dtype=np.uint8)
    data[0, 1024 + 32 * 2 + 5] = 7
    batch = pickle.dumps({b"data": data, b"labels": [3]}, protocol=2)
    for name in (layout.train[4], layout.test):  # any of the five will do
        (tmp_path / name).write_bytes(batch)
    train = cifar("cifar10", tmp_path).train
    assert train.pixels.nonzero().tolist() == [[0, 1, 2, 5]]
    assert train.labels.tolist() == [3]


class Evil:
    def __reduce__(self):
        return os.system, ("echo pwned > evil",)


def test_a_pickle_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content, asked in (
        (pickle.dumps({b"data": Evil(), b"labels": [0]}), r"posix\.system"),
        (b"c__builtin__\neval\n(S'1'\ntR.", r"eval"),
        (pickle.dumps(np.random.default_rng), "numpy"),
    ):
        (tmp_path / "data_batch_1").write_bytes(content)
        (tmp_path / "test_batch").write_bytes(make_batch(2, 10, b"labels", 0))
        with pytest.raises(ValueError, match=f"data_batch_1 cannot be read: it asks for .*{asked}"):
            cifar("cifar10", tmp_path)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "batch",
    [
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]},
        {b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]},
        {b"data": np.zeros((2, 3072)), b"labels": [1, 2]},
        {b"labels": [1, 2]},
        [1, 2],
    ],
)
def test_what_is_not_images_with_labels_is_refused(tmp_path, batch):
    for name in ("data_batch_1", "test_batch"):
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(ValueError, match="data_batch_1 does not hold images"):
        cifar("cifar10", tmp_path)


def test_what_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither cifar-10-python\.tar\.gz nor"):
        cifar("cifar10", tmp_path)
    path = write_cifar(tmp_path, "cifar10")
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ValueError, match="cut short or damaged"):
        cifar("cifar10", tmp_path)
    with tarfile.open(path, "w:gz") as archive:
        add(archive, "cifar-10-batches-py/data_batch_1", make_batch(2, 10, b"labels", 0))
    with pytest.raises(FileNotFoundError, match="test_batch"):
        cifar("cifar10", tmp_path)
    with pytest.raises(ValueError, match="name"):
        cifar("cifar20", tmp_path)


def test_the_download_is_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("CSGMCMC_DATA", str(tmp_path))
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(b"another"))
    with pytest.raises(ValueError, match="checksum"):
        cifar("cifar10")
    write_cifar(tmp_path, "cifar10")  # what is there already is used as it is
    assert len(cifar("cifar10").train) == 120


def test_every_crop_is_a_window_of_the_padded_image_and_half_are_mirrored():
    pixels = torch.arange(1, 101, dtype=torch.uint8).reshape(1, 1, 10, 10).repeat(4000, 1, 1, 1)
    generator = torch.Generator().manual_seed(0)
    moved = crop_and_flip(pixels, generator, padding=1)
    assert moved.shape == pixels.shape
    padded = torch.nn.functional.pad(pixels[0], [1, 1, 1, 1])
    windows = [padded[:, y : y + 10, x : x + 10] for y in range(3) for x in range(3)]
    known = torch.stack([*windows, *(window.flip(2) for window in windows)])
    match = (moved[:, None] == known).flatten(2).all(2)
    assert (match.sum(1) == 1).all()
    counts = match.sum(0).double()
    expected = 4000 / 18
    # Chi-squared with 17 degrees of freedom: above 52 in fewer than 2 of 100,000 seeds.
    assert float(((counts - expected) ** 2 / expected).sum()) < 52
    again = crop_and_flip(pixels, torch.Generator().manual_seed(0), padding=1)
    assert again.equal(moved)
    assert not crop_and_flip(pixels, generator, padding=1).equal(moved)


def some_images(count: int) -> Images:
    pixels = torch.randint(256, (count, 3, 8, 8), generator=torch.Generator().manual_seed(1))
    return Images(pixels.to(torch.uint8), torch.arange(count))


def test_training_batches_are_shuffled_whole_and_repeat_by_their_generators():
    images = some_images(22)
    standard = Standard(images.pixels)
    batches = TrainingBatches(images, standard, 4, seed=3)
    assert len(batches) == 5
    states = [generator.get_state() for generator in batches.generators]
    first, second = list(batches), list(batches)
    labels = torch.cat([one for _, one in first])
    assert len(labels.unique()) == 20
    assert not torch.cat([one for _, one in second]).equal(labels)
    for generator, state in zip(batches.generators, states, strict=True):
        generator.set_state(state)
    for (one, _), (other, _) in zip(batches, first, strict=True):
        assert one.equal(other)
        assert one.is_contiguous(memory_format=torch.channels_last)
    plain = TrainingBatches(images, standard, 4, seed=3, augment=False)
    pixels, chosen = next(iter(plain))
    assert pixels.equal(standard(images.pixels[chosen]))
    assert chosen.equal(first[0][1])
    with pytest.raises(ValueError, match="fewer than batch_size=23"):
        TrainingBatches(images, standard, 23, seed=0)


def test_plain_batches_are_all_images_in_order_standardised():
    images = some_images(22)
    batches = PlainBatches(images, Standard(images.pixels), 10)
    assert len(batches) == 3
    pixels = torch.cat([one for one, _ in batches])
    assert torch.cat([one for _, one in batches]).equal(images.labels)
    assert pixels.mean((0, 2, 3)).tolist() == pytest.approx([0] * 3, abs=1e-5)
    assert pixels.std((0, 2, 3)).tolist() == pytest.approx([1] * 3, abs=1e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_real_archives(name):
    if not (SHARED / LAYOUTS[name].archive).exists():
        pytest.skip("no data at hand")
    data = cifar(name, SHARED)
    assert (len(data.train), len(data.test)) == (20_000, 5_000)
    assert len(data.train.labels.unique()) == len(data.test.labels.unique()) == data.classes
    assert 110 < data.train.pixels.float().mean() < 130


def test_sizes_have_limits(tmp_path, monkeypatch):
    path = write_cifar(tmp_path, "cifar10")
    monkeypatch.setattr(sys.modules["paper.data.cifar"], "MOST_MEMBERS", 2)
    with pytest.raises(ValueError, match="more than 2 files"):
        cifar("cifar10", tmp_path)
    monkeypatch.setattr(sys.modules["paper.data.cifar"], "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="not a file of CIFAR"):
        cifar("cifar10", tmp_path)
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    with pytest.raises(ValueError, match="not a file of CIFAR"):
        cifar("cifar10", tmp_path / "unpacked")


def test_a_large_file_that_nobody_asked_for_is_not_read(tmp_path):
    """A few kilobytes of an archive may unpack to gigabytes."""
    path = tmp_path / LAYOUTS["cifar10"].archive
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("other")
        entry.size = 2**40
        archive.fileobj.write(entry.tobuf())  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(ValueError, match="holds 1099511627776 bytes"):
        cifar("cifar10", tmp_path)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_a_link_in_an_archive_is_refused(tmp_path, kind):
    layout = LAYOUTS["cifar10"]
    with tarfile.open(tmp_path / layout.archive, "w:gz") as archive:
        entry = tarfile.TarInfo(f"{layout.folder}/{layout.test}")
        entry.type, entry.linkname = kind, "elsewhere"
        archive.addfile(entry)
    with pytest.raises(ValueError, match="test_batch must be a file"):
        cifar("cifar10", tmp_path)
