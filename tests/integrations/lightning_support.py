"""A small network and runs of it, used in and out of process."""

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from csgmcmc import SGHMC, Cyclical, DrawStore, Schedule, shutdown_distributed
from csgmcmc.integrations.lightning import ResumableLoader, SamplingCallback

for name in ("lightning.pytorch", "pytorch_lightning"):
    logging.getLogger(name).setLevel(logging.ERROR)

STEPS, BATCHES = 60, 6
SCHEDULE = Cyclical(STEPS, cycles=3, exploration=0.5, draws_per_cycle=4)


class Points(Dataset):
    """Two classes; with `noise`, augmented from torch's global generator."""

    def __init__(self, size: int = 8 * BATCHES, noise: float = 0.0) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(size, 6, generator=generator)
        self.labels, self.noise = (self.inputs[:, 0] > 0).long(), noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int):
        inputs = self.inputs[index]
        return (inputs + self.noise * torch.randn(6) if self.noise else inputs), self.labels[index]


class Network(LightningModule):
    """A network with batch normalisation and dropout, the same every time."""

    def __init__(self, dropout: float = 0.0, **options: Any) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.net = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 2)
        )
        for param in self.net.parameters():
            nn.init.normal_(param, std=0.5, generator=generator)
        self.options = {"lr": 0.1, "num_data": 48, "momentum": 0.8, "seed": 3, **options}

    def forward(self, inputs):
        return self.net(inputs)

    def training_step(self, batch, batch_idx):
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return SGHMC(self.parameters(), **self.options)


class Validated(Network):
    """The same, and counts its validations."""

    validations = 0

    def validation_step(self, batch, batch_idx):
        assert not self.training
        self.validations += 1


def make_trainer(*callbacks: Callback, **options: Any) -> Trainer:
    quiet: dict[str, Any] = {
        "logger": False,
        "enable_checkpointing": any(isinstance(each, ModelCheckpoint) for each in callbacks),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
        "max_steps": STEPS,
    }
    return Trainer(callbacks=list(callbacks), **{**quiet, **options})


def in_order() -> DataLoader:
    return DataLoader(Points(), batch_size=8)


def fit(module=None, loader=None, draws=None, schedule: Schedule = SCHEDULE, **options):
    """Draws of a run of the Trainer."""
    callback = SamplingCallback(schedule, draws)
    module = Network() if module is None else module
    make_trainer(callback, **options).fit(module, in_order() if loader is None else loader)
    return callback.draws


def assert_same(one, other, **tolerance: Any) -> None:
    assert [(draw.chain_id, draw.step, draw.cycle) for draw in one] == [
        (draw.chain_id, draw.step, draw.cycle) for draw in other
    ]
    assert len(one) > 0
    for left, right in zip(one, other, strict=True):
        ours, theirs = left.tensors(), right.tensors()
        assert ours.keys() == theirs.keys()
        for name in ours:
            if tolerance:
                torch.testing.assert_close(ours[name], theirs[name], **tolerance)
            else:
                assert torch.equal(ours[name], theirs[name]), (left.step, name)


class Stopped(Exception):  # noqa: N818
    pass


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == self.step:
            raise Stopped


class Replica(Network):
    """Brings its data: a process knows its part of them only when it is among the others."""

    def train_dataloader(self):
        data = Points()
        return ResumableLoader(DataLoader(data, batch_size=4, sampler=DistributedSampler(data)))


def run_replicas(folder: Path) -> None:
    """What both processes do: Lightning starts the second one with the first one's command."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")

    def part(name: str, *callbacks: Callback, data=None, resume: bool = False, **options: Any):
        store = DrawStore(folder / name)
        saves = ModelCheckpoint(
            folder / f"{name}-saves", "last", every_n_train_steps=7, enable_version_counter=False
        )
        module = Replica(**options)
        callbacks = (SamplingCallback(SCHEDULE, store), saves, *callbacks)
        trainer = make_trainer(*callbacks, strategy="ddp", devices=2)
        path = folder / f"{name}-saves" / "last.ckpt" if resume else None
        trainer.fit(module, data, ckpt_path=path, weights_only=True)
        return trainer.global_rank, module

    def refused(name: str, **options: Any) -> None:
        try:
            part(name, **options)
        except ValueError as error:
            (folder / f"{name}-{rank}.txt").write_text(str(error))

    rank, module = part("whole")
    torch.save(list(module.parameters()), folder / f"weights-{rank}.pt")
    try:
        part("cut", StopAt(33))
    except Stopped:
        part("cut", resume=True)
    refused("seeds", seed=None)
    refused("same", data=ResumableLoader(in_order()))
    refused("whole")
    del module
    shutdown_distributed()


if __name__ == "__main__":
    run_replicas(Path(sys.argv[1]))
