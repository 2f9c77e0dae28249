"""Handwritten digits from scikit-learn, and letters as out-of-distribution data; no download."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

TRAIN, VALIDATION = 1000, 300
# Without letters that look like digits: B, G, I, O, Q, S, Z.
LETTERS = "ACDEFHJKLMNPRTUVWXY"
FONTS = "DejaVu*.ttf"  # those that have all letters; not DejaVuSansDisplay


class Digits(NamedTuple):
    """1000 digits for training, 300 for validation, 497 for testing."""

    train: TensorDataset
    validation: TensorDataset
    test: TensorDataset


def load_digits() -> Digits:
    """Images of shape (1, 8, 8) with values from 0 to 1, and labels; always the same split."""
    from sklearn import datasets  # noqa: PLC0415  (takes a second to import)

    pixels, labels = datasets.load_digits(return_X_y=True)
    images = torch.as_tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    # The data set is ordered by writer: shuffle, so that each part has all writers.
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return Digits(*_parts(images[order], torch.as_tensor(labels)[order]))


def _parts(images: Tensor, labels: Tensor) -> list[TensorDataset]:
    sizes = [TRAIN, VALIDATION, len(images) - TRAIN - VALIDATION]
    pairs = zip(images.split(sizes), labels.split(sizes), strict=True)
    return [TensorDataset(*pair) for pair in pairs]


def load_letters() -> Tensor:
    """Images of shape (1, 8, 8) with values from 0 to 1, made as the digits were.

    Those are bitmaps of 32x32 pixels, of which the black ones are counted in squares of 4x4. Needs
    matplotlib for its fonts, and Pillow, which comes with it.
    """
    import matplotlib as mpl  # noqa: PLC0415  (an extra)
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415

    images = []
    for path in sorted(Path(mpl.get_data_path(), "fonts", "ttf").glob(FONTS)):
        if "Display" in path.name:
            continue
        font = ImageFont.truetype(path, 64)
        for letter in LETTERS:
            left, top, right, bottom = font.getbbox(letter)
            glyph = Image.new("L", (int(right - left), int(bottom - top)))
            ImageDraw.Draw(glyph).text((-left, -top), letter, fill=255, font=font)
            scale = 32 / max(glyph.size)
            width, height = (max(1, round(scale * side)) for side in glyph.size)
            page = Image.new("L", (32, 32))
            page.paste(glyph.resize((width, height)), ((32 - width) // 2, (32 - height) // 2))
            black = np.asarray(page) > 127
            images.append(black.reshape(8, 4, 8, 4).mean(axis=(1, 3)))
    return torch.as_tensor(np.stack(images), dtype=torch.float32)[:, None]
