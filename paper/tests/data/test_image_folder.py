"""Image folders and tars of them, made here; the slice of ImageNet where it is at hand."""

import pickle
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from paper.data import ImageFolder, find_image_folder
from paper.data.image_folder import MEAN, SD

SHARED = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def root(tmp_path):
    """Two classes of one colour each, images of 40x24 pixels."""
    for part, count in (("train", 3), ("val", 2)):
        for name, colour in (("n02", (255, 0, 0)), ("n01", (0, 0, 255))):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (40, 24), colour).save(folder / f"{name}_{number}.PNG")
            (folder / "notes.txt").write_text("no image")
    return tmp_path / "images"


def as_tar(root: Path) -> Path:
    path = root.parent / "my-imagenet.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(root, "images")
    return path


def test_a_folder_and_its_tar_give_the_same(root):
    path = as_tar(root)
    for part, count in (("train", 6), ("val", 4)):
        folder = ImageFolder(root, part, size=8, augment=False)
        packed = ImageFolder(path, part, size=8, augment=False)
        assert len(folder) == len(packed) == count
        assert folder.classes == packed.classes == ["n01", "n02"]
        packed = pickle.loads(pickle.dumps(packed))  # as to the workers of a loader
        for index in range(count):
            one, other = folder[index], packed[index]
            assert one[0].equal(other[0])
            assert one[1] == other[1]
    image, label = ImageFolder(root, "val", size=8)[3]
    assert label == 1
    assert image.shape == (3, 8, 8)
    red = [(value - mean) / sd for value, mean, sd in zip((1, 0, 0), MEAN, SD, strict=True)]
    assert image.mean((1, 2)).tolist() == pytest.approx(red, abs=1e-5)
    assert find_image_folder(root) == root
    assert find_image_folder(root.parent) == root


def test_images_without_folders_have_the_classes_of_the_official_table(root):
    flat, lines = root / "flat" / "val", ["ImageId,PredictionString"]
    flat.mkdir(parents=True)
    for number, path in enumerate(sorted((root / "val").rglob("*.PNG"))):
        path.rename(flat / f"ILSVRC2012_val_{number}.PNG")
        lines.append(
            f"ILSVRC2012_val_{number},{path.parent.name} 1 2 3 4 {path.parent.name} 5 6 7 8"
        )
    with pytest.raises(FileNotFoundError, match=r"need LOC_val_solution\.csv beside val"):
        ImageFolder(root, "val", size=8)
    (root / "flat" / "LOC_val_solution.csv").write_text("\n".join(lines))
    for place in (root, as_tar(root)):
        images = ImageFolder(place, "val", size=8)
        assert images.classes == ["n01", "n02"]
        assert [images[index][1] for index in range(4)] == [0, 0, 1, 1]


def test_a_tar_is_found_in_a_folder(root):
    path = as_tar(root)
    place = root.parent / "data"
    place.mkdir()
    path.rename(place / path.name)
    assert find_image_folder(place) == place / path.name
    (place / "other-imagenet.tar").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"2 imagenet\*\.tar"):
        find_image_folder(place)


def test_the_middle_is_cut_and_augmentation_varies(tmp_path):
    folder = tmp_path / "train" / "n01"
    folder.mkdir(parents=True)
    image = Image.new("RGB", (32, 16))
    image.paste((255, 255, 255), (16, 0, 32, 16))  # the right half is white
    image.save(folder / "a.png")
    plain, _ = ImageFolder(tmp_path, "train", size=14, augment=False)[0]
    bright = plain[0] > 0
    assert bright[:, 8:].all()
    assert not bright[:, :6].any()
    data = ImageFolder(tmp_path, "train", size=14)
    torch.manual_seed(0)
    crops = torch.stack([data[0][0] for _ in range(40)])
    assert crops.shape == (40, 3, 14, 14)
    left, right = crops[:, 0, :, 0].mean(1), crops[:, 0, :, -1].mean(1)
    assert (left > right).any()  # some are mirrored
    assert (left < right).any()
    torch.manual_seed(0)
    assert data[0][0].equal(crops[0])


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"has no val/CLASS/\*\.JPEG"):
        ImageFolder(tmp_path, "val")
    with pytest.raises(ValueError, match="part"):
        ImageFolder(tmp_path, "test")
    with pytest.raises(FileNotFoundError, match="has no folder with train and val"):
        find_image_folder(tmp_path)
    (tmp_path / "a.tar").write_bytes(b"no tar")
    with pytest.raises(ValueError, match="not a tar file"):
        ImageFolder(tmp_path / "a.tar", "val")
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ModuleNotFoundError, match=r"Pillow: pip install 'csgmcmc\[plot\]'"):
        ImageFolder(tmp_path, "val")


@pytest.mark.skipif(not (SHARED / "tiny-imagenet-20.tar").exists(), reason="no data at hand")
def test_the_real_slice():
    train, val = (
        ImageFolder(find_image_folder(SHARED), part, size=32) for part in ("train", "val")
    )
    assert (len(train), len(val), len(train.classes)) == (1200, 400, 20)
    image, label = val[399]
    assert image.shape == (3, 32, 32)
    assert label == 19
