"""Crop and flip of whole batches of images, as tensors; and batches that are made with them."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from paper.arguments import check_count
from paper.data.cifar import Images


def crop_and_flip(pixels: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Each image moved by up to `padding` pixels, black beyond its edge, and half of them mirrored.

    `pixels` has shape (n, channels, height, width); the draws are from `generator` alone.
    """
    count, _, height, width = pixels.shape
    places = 2 * padding + 1
    shifts = torch.randint(places**2, (count,), generator=generator)
    mirrored = torch.rand(count, generator=generator) < 0.5
    padded = pad(pixels, [padding] * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: nothing is copied
    cropped = windows[torch.arange(count), :, shifts // places, shifts % places]
    return torch.where(mirrored[:, None, None, None], cropped.flip(3), cropped)


class Standard:
    """Pixels as numbers of mean 0 and sd 1 in each colour, by what the training data have."""

    def __init__(self, train: Tensor) -> None:
        means, sds = zip(*map(_mean_and_sd, train.unbind(1)), strict=True)
        self.mean = torch.tensor(means).view(-1, 1, 1)
        self.sd = torch.tensor(sds).clamp(min=1).view(-1, 1, 1)  # of images of one colour, too

    def __call__(self, pixels: Tensor) -> Tensor:
        """In the memory format that convolutions on a CPU are fastest with."""
        numbers = (pixels.float() - self.mean) / self.sd
        return numbers.contiguous(memory_format=torch.channels_last)


def _mean_and_sd(pixels: Tensor) -> tuple[float, float]:
    """From how often each of the 256 values is there: no copy of the images as numbers."""
    counts = torch.bincount(pixels.flatten(), minlength=256).double()
    values, total = torch.arange(256, dtype=torch.float64), counts.sum()
    mean = (counts * values).sum() / total
    variance = (counts * (values - mean) ** 2).sum() / (total - 1)
    return mean.item(), variance.sqrt().item()


class TrainingBatches:
    """Shuffled and augmented batches of an epoch, each time it is iterated; whole batches only.

    Order and augmentation have a generator each, `generators`, so that a chain can save them.
    """

    def __init__(
        self,
        images: Images,
        standard: Standard,
        batch_size: int,
        seed: int,
        *,
        augment: bool = True,
    ) -> None:
        check_count("batch_size", batch_size, at_least=1)
        if len(images) < batch_size:
            raise ValueError(f"{len(images)} images are fewer than batch_size={batch_size}")
        self.dataset, self.batch_size = images, batch_size
        self._standard, self._augment = standard, augment
        self.generators = [torch.Generator().manual_seed(2 * seed + part) for part in range(2)]

    def __len__(self) -> int:
        return len(self.dataset) // self.batch_size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order, augmentation = self.generators
        rows = torch.randperm(len(self.dataset), generator=order)
        for chosen in rows.split(self.batch_size)[: len(self)]:
            pixels = self.dataset.pixels[chosen]
            if self._augment:
                pixels = crop_and_flip(pixels, augmentation)
            yield self._standard(pixels), self.dataset.labels[chosen]


class PlainBatches:
    """Batches of all images in their order, for predictions."""

    def __init__(self, images: Images, standard: Standard, batch_size: int = 500) -> None:
        self.dataset, self.batch_size, self._standard = images, batch_size, standard

    def __len__(self) -> int:
        return len(range(0, len(self.dataset), self.batch_size))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for first in range(0, len(self.dataset), self.batch_size):
            part = self.dataset.part(first, first + self.batch_size)
            yield self._standard(part.pixels), part.labels
