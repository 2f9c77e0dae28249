"""ImageNet: four methods with ResNet-50 (the paper's table 3), on as many processes as there are.

    torchrun --nproc-per-node=4 -m paper run imagenet --preset paper --data DIR

Every process sees its part of the data, all share their gradients, and one of them writes; without
torchrun there is one process. A batch has 64 images however many processes share it. `DIR` holds
`train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`, or a tar of them; or `val/*.JPEG`, as the official
archive has it, and `LOC_val_solution.csv` with their classes. The paper states the network, 120
epochs, 3 cycles and 3 draws per cycle, and no script is published. The rest is taken from CIFAR:
batch 64, step sizes, beta, weight decay, momentum, temperature 1/N and the schedules of SGDM and
SGHMC. SGHMC keeps as many draws as cSGHMC.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Subset

from csgmcmc import ProcessLayout, init_distributed
from csgmcmc.draws import Draw, DrawStore
from csgmcmc.posterior import ClassPredictive, Posterior
from paper.data import ImageFolder, check_complete, find_image_folder
from paper.diagnostics import top_k_accuracy
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.methods import (
    BY_NAME,
    ResidualNetwork,
    Run,
    losses_of,
    make_chain,
    predict,
    rounded,
)

RESNET50 = ResidualNetwork("resnet50", width=64, batch=64)
METHODS = ("SGDM", "Snapshot-SGDM", "SGHMC", "cSGHMC")
CHUNK = 200  # batches that are scored at a time: the draws are read once for each chunk


@dataclass(frozen=True)
class ImagenetConfig(Config):
    """Settings of `imagenet`.

    Args:
        network: ResNet-50, or "tiny", which has its parts; its batch is that of all processes
            together.
        size: height and width of the images.
        augment: random crops and mirrored images in training.
        loaders: processes that read images, for each process that trains.
    """

    network: ResidualNetwork = RESNET50
    size: int = 224
    augment: bool = True
    epochs: int = 120
    cycles: int = 3
    exploration: float = 0.8
    draws_per_cycle: int = 3
    lr_cyclical: float = 0.5
    lr: float = 0.1
    loaders: int = 8

    def run(self, method: str, seed: int) -> Run:
        """The chain of a method: its temperature is 1/N where there is noise."""
        return Run.of(
            method,
            self.lr_cyclical if BY_NAME[method].cyclical else self.lr,
            seed,
            epochs=self.epochs,
            cycles=self.cycles,
            exploration=self.exploration,
            draws_per_cycle=self.draws_per_cycle,
            draws=self.cycles * self.draws_per_cycle,
        )


class Imagenet(Experiment[ImagenetConfig]):
    """A job is one method and seed, done by all processes together."""

    name = "imagenet"
    summary = "NLL, top-1 and top-5 of four methods with ResNet-50 on ImageNet"
    keeps_draws = True
    presets = {
        "paper": ImagenetConfig(),
        # Cycles that fit the training data, for a slice of ImageNet; crops would not let them.
        "laptop": ImagenetConfig(
            seeds=3,
            network=ResidualNetwork("tiny", width=16, batch=32),
            size=32,
            augment=False,
            epochs=60,
            loaders=0,
        ),
        "smoke": ImagenetConfig(
            network=ResidualNetwork("tiny", width=8, batch=8),
            size=16,
            epochs=4,
            exploration=0.5,
            draws_per_cycle=1,
            loaders=0,
        ),
    }

    def jobs(
        self, config: ImagenetConfig, done: Mapping[str, Record]
    ) -> Mapping[str, Mapping[str, Any]]:
        return {
            f"{method}, seed {seed}": {"method": method, "seed": seed}
            for seed in range(config.seeds)
            for method in METHODS
        }

    def check_data(self, config: ImagenetConfig, data: Path | None) -> None:
        root = _root(data)
        parts = (ImageFolder(root, part) for part in ("train", "val"))
        check_complete("imagenet", *map(len, parts))

    def run(self, config: ImagenetConfig, data: Path | None, **options: Any) -> Record:
        run, here = config.run(options["method"], options["seed"]), init_distributed(chains=1)
        root = _root(data)
        train = ImageFolder(root, "train", size=config.size, augment=config.augment)
        val = ImageFolder(root, "val", size=config.size)
        folder = options["draws"] / "imagenet" / f"{run.method}-seed{run.seed}"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 * run.seed + here.replica_id)  # crops, if no loader makes them
            _sample(config, run, here, train, folder)
        if here.group is not None:
            dist.barrier(here.group)  # the first replica has written the last draw
        found = _scores(config, here, val, DrawStore(folder))
        plain = ImageFolder(root, "train", size=config.size, augment=False)
        ends = {draw.cycle: draw for draw in DrawStore(folder)}
        return {
            **asdict(run),
            "processes": here.replicas,
            "train": len(train),
            "train_errors": [
                _scores(config, here, plain, [draw])["top1_error"] for draw in ends.values()
            ],
            "scores": found,
        }


def _root(data: Path | None) -> Path:
    if data is None:
        raise ValueError("ImageNet cannot be downloaded freely: name its folder with --data")
    return find_image_folder(data)


def _sample(
    config: ImagenetConfig, run: Run, here: ProcessLayout, train: ImageFolder, folder: Path
) -> None:
    network = config.network
    if network.batch % here.replicas:
        raise ValueError(
            f"{here.replicas} processes cannot share batches of {network.batch} images equally"
        )
    loader = DataLoader(
        train,
        network.batch // here.replicas,
        sampler=here.data_sampler(train, seed=run.seed),
        num_workers=config.loaders,
        persistent_workers=config.loaders > 0,
        pin_memory=here.device.type == "cuda",
        drop_last=True,
        generator=torch.Generator().manual_seed(1000 * run.seed + here.replica_id),
    )
    model = network.make(len(train.classes), run.seed).to(here.device)
    make_chain(
        run,
        network,
        model,
        loader,
        len(train),
        DrawStore(folder),
        layout=here,
        device=here.device,
        autocast=torch.bfloat16 if here.device.type == "cuda" else None,
    ).run(resume=True)


def _scores(
    config: ImagenetConfig, here: ProcessLayout, images: ImageFolder, draws: Sequence[Draw]
) -> Record:
    """Scores on some images, of which each process takes its part."""
    model = config.network.make(len(images.classes)).to(here.device)
    mine = Subset(images, range(here.replica_id, len(images), here.replicas))
    loader = iter(DataLoader(mine, config.network.batch, num_workers=config.loaders))
    posterior = Posterior(model, draws, vectorize=False, progress=False)
    # Some batches at a time: the predictions of all of ImageNet need not fit into memory.
    sums = torch.zeros(5, dtype=torch.float64)
    while batches := list(islice(loader, CHUNK)):
        sums += torch.tensor(list(_sums(predict(posterior, batches))), dtype=torch.float64)
    sums = sums.to(here.device)
    if here.group is not None:
        dist.all_reduce(sums, group=here.group)
    count, loss, square, top1, top5 = sums.tolist()
    mean = loss / count
    return {
        "draws": len(draws),
        "tested": int(count),
        "nll": rounded(mean),
        "nll_error": rounded((max(square / count - mean**2, 0) / count) ** 0.5),
        "top1_error": rounded(1 - top1 / count),
        "top5_error": rounded(1 - top5 / count),
    }


def _sums(predictive: ClassPredictive) -> Iterator[float]:
    """Of a process's part: points, losses, their squares, and how often the label is on top."""
    probs, labels, losses = (
        predictive.probs_numpy(),
        predictive.labels_numpy(),
        losses_of(predictive),
    )
    yield len(labels)
    yield losses.sum()
    yield (losses**2).sum()
    for k in (1, min(5, probs.shape[1])):
        yield len(labels) * top_k_accuracy(probs, labels, k)
