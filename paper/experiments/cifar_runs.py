"""Chains of residual networks on CIFAR: what the experiments of deep networks are made of.

A run is a value: all that decides its draws. Its draws are made once, in a folder of its name, and
found there by every experiment that needs them; a run that was stopped goes on from its last
checkpoint. So the chains of one table are the chains of another, where they are the same.

Where the paper leaves a choice:

- SGD and SGDM: one cosine from the step size to 0, the shape of a cycle; the last weights. SGDM
  has momentum 0.9. The others that have momentum have the paper's eta = 0.9: momentum 0.1.
- SGLD and SGHMC: in three quarters of the epochs the step size falls to a hundredth, along a cosine
  and without noise; then it is a tenth of the first one times k^-0.5005, k in epochs from 1, with
  noise.
- Images are moved by up to 4 pixels and mirrored, and standardised by the training data.
"""

import hashlib
import json
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from csgmcmc.arguments import check_choice
from csgmcmc.chain import Chain
from csgmcmc.diagnostics import accuracy, calibration_error, negative_log_likelihood
from csgmcmc.draws import Draw, Draws, DrawStore, MemoryDraws
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.schedules import Constant, Cyclical, Joined, Ramp, Schedule
from paper.data import Images, PlainBatches, Standard, TrainingBatches, cifar
from paper.experiments.base import Record
from paper.experiments.uncertainty_methods import GAMMA, METHODS
from paper.networks import resnet8, resnet18, resnet20

BY_NAME = {method.name: method for method in METHODS}
CHECKPOINT_STEPS = 50  # at least so many between checkpoints: seconds, at any size
BURN_IN = 0.75
LOWEST, TAIL = 0.01, 0.1
"""Shares of the step size: at the end of the burn-in, and at the start of the decay."""


@dataclass(frozen=True)
class Network:
    """What is trained, with options that are the same for all methods."""

    kind: str
    width: int
    batch: int
    weight_decay: float = 5e-4
    momentum: float = 0.1
    sgdm_momentum: float = 0.9

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("resnet8", "resnet18", "resnet20"))
        if self.width % 8:
            # With 4 channels the backward pass of torch 2 in this memory format corrupts memory.
            raise ValueError(f"width must be a multiple of 8, got {self.width}")

    def make(self, classes: int, seed: int = 0) -> nn.Module:
        """The starting weights of `seed`, in the memory format that is fastest."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.kind == "resnet18":  # whose width is the paper's
                model = resnet18(classes)
            else:
                model = {"resnet8": resnet8, "resnet20": resnet20}[self.kind](classes, self.width)
        return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


@dataclass(frozen=True)
class Run:
    """One chain. `draws` are those of a cycle where there are cycles, else all.

    `temperature` is a number, or "1/N". The last `held_out` of the training data are not used.
    """

    method: str
    lr: float
    seed: int
    epochs: float
    temperature: str
    draws: int
    cycles: int = 1
    exploration: float = 0.8
    held_out: int = 0

    def schedule(self, epoch: int) -> Schedule:
        """What the chain does, `epoch` being the steps of an epoch."""
        method, steps = BY_NAME[self.method], round(self.epochs * epoch)
        if method.cyclical or not method.hot:  # plain SGD is one cycle
            return Cyclical(
                steps, self.cycles, exploration=self.exploration, draws_per_cycle=self.draws
            )
        burn_in = round(BURN_IN * steps)
        ends = np.append(np.arange(burn_in, steps, epoch), steps)  # of the epochs of the decay
        kept = np.diff(self.draws * (ends - burn_in) // (steps - burn_in))
        decay = [
            Constant(int(length), lr_scale=TAIL * k**-GAMMA, draws=int(count) or None)
            for k, (length, count) in enumerate(zip(np.diff(ends), kept, strict=True), start=1)
        ]
        return Joined([Ramp(burn_in, 1, LOWEST, "cosine"), *decay])

    def heat(self, num_data: int) -> float:
        """The temperature as a number."""
        return 1 / num_data if self.temperature == "1/N" else float(self.temperature)


@dataclass(frozen=True, eq=False)
class Source:
    """A data set, standardised by all of its training data, and its name."""

    name: str
    train: Images
    test: Images
    classes: int
    standard: Standard

    def without(self, held_out: int) -> Images:
        """The training data but for the last `held_out`."""
        return self.train.part(0, len(self.train) - held_out)

    def validation(self, held_out: int) -> Images:
        """The last `held_out` of the training data."""
        return self.train.part(len(self.train) - held_out, len(self.train))


@cache
def load(name: str, folder: Path | None, train: int | None, test: int | None) -> Source:
    """The first images of the data set `name`; kept, as one process does many jobs."""
    data = cifar(name, folder)
    images = data.train.part(0, train or len(data.train))
    tested = data.test.part(0, test or len(data.test))
    return Source(name, images, tested, data.classes, Standard(images.pixels))


def folder_of(draws: Path, network: Network, source: Source, run: Run) -> Path:
    """Where the draws of a run are: named by what it is, and by all that decides them."""
    settings = {**asdict(network), **asdict(run), "data": source.name, "size": len(source.train)}
    settings["epochs"] = float(run.epochs)  # 3 and 3.0 are the same run
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return draws / source.name / f"{run.method}-seed{run.seed}-{digest}"


def sample(run: Run, network: Network, source: Source, draws: Path | None) -> Draws:
    """The draws of a run, from their folder as far as they are there; None keeps no files."""
    train = source.without(run.held_out)
    batches = TrainingBatches(train, source.standard, network.batch, run.seed)
    schedule = run.schedule(len(batches))
    store: Draws = MemoryDraws()
    if draws is not None:
        store = DrawStore(folder_of(draws, network, source, run), provenance=asdict(run))
        if len(store) == schedule.total_draws:  # the last draw is of the last step: nothing to do
            return store
    model = network.make(source.classes, run.seed)
    chain = Chain(
        model,
        cross_entropy,
        batches,
        _sampler(run, network, model, len(train)),
        schedule,
        store,
        generators=batches.generators,
        checkpoint_every=max(CHECKPOINT_STEPS, schedule.steps // 100),
        watch=False,  # the settings are the paper's, or tried on purpose
        progress=False,
    )
    return chain.run(resume=draws is not None)


def _sampler(run: Run, network: Network, model: nn.Module, num_data: int) -> Sampler:
    kind = BY_NAME[run.method].sampler
    own: dict[str, Any] = {}
    if kind is SGHMC:
        own["momentum"] = network.sgdm_momentum if run.method == "SGDM" else network.momentum
    return kind(
        model.parameters(),
        run.lr,
        num_data=num_data,
        temperature=run.heat(num_data),
        weight_decay=network.weight_decay,
        seed=run.seed,
        **own,
    )


def posterior_of(network: Network, source: Source, draws: SequenceOf[Draw]) -> Posterior:
    """The average over draws, taken one after another: stacked convolutions are slower."""
    return Posterior(network.make(source.classes), draws, vectorize=False, progress=False)


def predict(
    network: Network, source: Source, draws: SequenceOf[Draw], images: Images
) -> ClassPredictive:
    """The prediction for `images`, with those of the single draws."""
    posterior = posterior_of(network, source, draws)
    predictive = posterior.predict_loader(PlainBatches(images, source.standard), members=True)
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (the outputs are of classes)
    return predictive


def scores(predictive: ClassPredictive) -> Record:
    """Error, NLL and calibration of the average, and the error of the single draws.

    `nll_error` is the standard error that comes from the number of test points.
    """
    forecasts, labels = predictive.probs_numpy(), predictive.labels_numpy()
    members = predictive.member_probs_numpy()
    errors = (members.argmax(-1) != labels).mean(1)
    losses = -predictive.log_probs.double().numpy()[np.arange(len(labels)), labels]
    return {
        "draws": len(members),
        "tested": len(labels),
        "error": rounded(1 - accuracy(forecasts, labels)),
        "nll": rounded(negative_log_likelihood(forecasts, labels)),
        "nll_error": rounded(losses.std(ddof=1) / len(losses) ** 0.5),
        "ece": rounded(calibration_error(forecasts, labels)),
        "single_error": rounded(errors.mean()),
    }


def validation_nll(run: Run, network: Network, source: Source) -> float:
    """NLL of the averaged prediction on what the run has held out."""
    draws = sample(run, network, source, None)
    predictive = predict(network, source, draws, source.validation(run.held_out))
    return negative_log_likelihood(predictive.probs_numpy(), predictive.labels_numpy())


def rounded(value: float | np.floating) -> float:
    """Digits enough for a table."""
    return round(float(value), 5)
