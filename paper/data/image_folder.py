"""Images in folders, as ImageNet is: `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`, or a tar of them.

The official archive has `val/*.JPEG` without classes; these are read from `LOC_val_solution.csv`,
which lies beside `val`, as on Kaggle.

Needs Pillow, which comes with matplotlib.
"""

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from paper.arguments import check_choice, check_count

SOLUTION = "LOC_val_solution.csv"
ENDINGS = (".jpeg", ".jpg", ".png")
MEAN, SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours, from 0 to 1
SMALLEST, RATIO = 0.08, 4 / 3  # of a random crop, as is usual for ImageNet (Szegedy et al. 2015)


class Where(NamedTuple):
    """Some bytes of a file, to its end where `size` is None."""

    path: Path
    start: int
    size: int | None

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.start)
            return file.read(self.size)


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """Images of one part, with the number of their class in alphabetical order.

    Args:
        root: a folder that holds, at any depth, `PART/CLASS/*`; or a tar file of it.
        part: "train" or "val".
        size: height and width of what it gives.
        augment: take a random crop and mirror half of the images, for training; else the middle of
            the image, after its shorter side is 8/7 of `size`. By torch's global generator, which
            a `DataLoader` seeds for each of its workers.
    """

    def __init__(
        self, root: Path, part: str, *, size: int = 224, augment: bool | None = None
    ) -> None:
        check_choice("part", part, ("train", "val"))
        self.size = check_count("size", size, at_least=1)
        self.augment = part == "train" if augment is None else augment
        self._pillow()  # an error now, rather than in a worker
        found = _in_folder(root, part) if root.is_dir() else _in_tar(root, part)
        if not found:
            raise FileNotFoundError(
                f"{root} has no {part}/CLASS/*.JPEG; images of {part} without folders of their "
                f"classes need {SOLUTION} beside {part}"
            )
        self.classes = sorted({label for label, _ in found})
        numbers = {label: number for number, label in enumerate(self.classes)}
        self.images = [(where, numbers[label]) for label, where in found]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        where, label = self.images[index]
        image = self._pillow().open(io.BytesIO(where.read())).convert("RGB")
        image = self._random_crop(image) if self.augment else self._middle(image)
        numbers = torch.as_tensor(np.asarray(image, dtype=np.float32) / 255)
        if self.augment and torch.rand(()) < 0.5:
            numbers = numbers.flip(1)
        standard = (numbers - torch.tensor(MEAN)) / torch.tensor(SD)
        return standard.permute(2, 0, 1), label

    @staticmethod
    def _pillow() -> Any:
        try:
            from PIL import Image  # noqa: PLC0415  (an extra)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "images in files need Pillow: pip install 'csgmcmc[plot]'", name="PIL"
            ) from error
        return Image

    def _random_crop(self, image: Any) -> Any:
        """A part of the image of random area and shape; all of it if none fits in ten tries."""
        width, height = image.size
        for _ in range(10):
            area = width * height * float(torch.empty(()).uniform_(SMALLEST, 1))
            ratio = float(torch.empty(()).uniform_(-1, 1).mul(np.log(RATIO)).exp())
            wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if 0 < wide <= width and 0 < high <= height:
                left = int(torch.randint(width - wide + 1, ()))
                top = int(torch.randint(height - high + 1, ()))
                box = (left, top, left + wide, top + high)
                return image.resize((self.size, self.size), self._pillow().BILINEAR, box=box)
        return self._middle(image)

    def _middle(self, image: Any) -> Any:
        shorter = min(image.size)
        side = shorter * 7 / 8
        left, top = ((length - side) / 2 for length in image.size)
        box = (left, top, left + side, top + side)
        return image.resize((self.size, self.size), self._pillow().BILINEAR, box=box)


def _in_folder(root: Path, part: str) -> list[tuple[str, Where]]:
    """Class and place of every image of a part, in alphabetical order."""
    names = {str(path): path for path in root.rglob("*") if path.is_file()}
    table = next((path.read_text() for path in names.values() if path.name == SOLUTION), "")
    found = _of_part(names, part, _solution(table))
    return [(label, Where(names[name], 0, None)) for label, name in found]


def _in_tar(root: Path, part: str) -> list[tuple[str, Where]]:
    try:
        with tarfile.open(root, "r:") as archive:
            members = {member.name: member for member in archive if member.isfile()}
    except tarfile.TarError as error:
        raise ValueError(f"{root} is not a tar file, or compressed: unpack it") from error
    places = {
        name: Where(root, member.offset_data, member.size) for name, member in members.items()
    }
    table = next((name for name in places if name.endswith(SOLUTION)), None)
    classes = _solution(places[table].read().decode() if table else "")
    return [(label, places[name]) for label, name in _of_part(members, part, classes)]


def _solution(table: str) -> dict[str, str]:
    """Classes of images by their names, from lines like `ILSVRC2012_val_1,n01440764 1 2 3 4`."""
    rows = (line.split(",", 1) for line in table.splitlines()[1:] if "," in line)
    return {name: boxes.split()[0] for name, boxes in rows}


def _of_part(names: Iterable[str], part: str, classes: Mapping[str, str]) -> list[tuple[str, str]]:
    found = []
    for name in names:
        parts = name.replace("\\", "/").split("/")
        if parts[-3:-2] == [part] and name.lower().endswith(ENDINGS):
            found.append((parts[-2], name))
        elif parts[-2:-1] == [part] and (label := classes.get(parts[-1].rpartition(".")[0])):
            found.append((label, name))
    return sorted(found)


def find_image_folder(folder: Path) -> Path:
    """The folder itself if it has `train`, else one in it that has, else a tar file in it."""
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (place / "train").is_dir() and (place / "val").is_dir():
            return place
    tars = sorted(path for path in folder.glob("*.tar") if "imagenet" in path.name)
    if len(tars) != 1:
        raise FileNotFoundError(
            f"{folder} has no folder with train and val in it, and {len(tars)} imagenet*.tar"
        )
    return tars[0]
