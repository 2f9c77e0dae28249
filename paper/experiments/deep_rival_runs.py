"""Runs, predictions and costs of the methods of `deep_rivals`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from csgmcmc.diagnostics import accuracy, auroc, calibration_error
from csgmcmc.draws import Draw
from csgmcmc.schedules import Constant, Joined, Ramp, Schedule
from paper.data import Images, PlainBatches
from paper.experiments import methods
from paper.experiments.base import Record
from paper.experiments.deep_runs import Source, posterior_of, sample
from paper.experiments.deep_settings import Setting
from paper.experiments.methods import BURN_IN, Network, Run, finite_nll, rounded
from paper.rivals import (
    SWAG,
    add_dropout,
    diagonal_laplace,
    dropout_draws,
    last_layer_laplace,
    linearised_probs,
)

CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "MC dropout": ("0.1", "0.25", "0.5"),  # rates
    "SWAG": ("0.05", "0.2", "0.5"),  # shares of the step size while weights are collected
    "Laplace, last layer": ("1", "30", "1000"),  # factors of the prior's precision
    "Laplace, diagonal": ("1", "30", "1000"),
    "cSGHMC": ("1/N", "0.1", "1"),  # temperatures
}
LAPLACES = ("Laplace, last layer", "Laplace, diagonal")
LINEAR = LAPLACES[1]
REPEATS = 3  # of each timing
SMALLEST = 1e-30  # probability, so that the NLL of a label that was excluded is a number


@dataclass(frozen=True)
class RivalRun(Run):
    """A run with dropout, or with a constant step size at its end.

    Args:
        dropout: share of the inputs of linear layers that are dropped in training.
        level: share of the step size that the last quarter of the epochs has, all of whose draws
            are kept; 0 is one cosine.
    """

    dropout: float = 0.0
    level: float = 0.0

    @classmethod
    def of_run(cls, run: Run, **changes: Any) -> Self:
        """A run like another one, except for `changes`."""
        known = {field.name: getattr(run, field.name) for field in fields(run)}
        return cls(**{**known, **changes})

    def schedule(self, epoch: int) -> Schedule:
        if not self.level:
            return super().schedule(epoch)
        steps = round(self.epochs * epoch)
        start = round(BURN_IN * steps)
        tail = Constant(steps - start, lr_scale=self.level, draws=self.draws)
        return Joined([Ramp(start, 1, self.level, "cosine"), tail])


@dataclass(frozen=True)
class WithDropout(Network):
    """A network whose linear layers drop inputs in training."""

    inner: Network
    rate: float

    def build(self, classes: int) -> nn.Module:
        model = self.inner.build(classes)
        add_dropout(model, self.rate)
        return model

    def momentum_of(self, method: str) -> float:
        return self.inner.momentum_of(method)


class Predictions(NamedTuple):
    """Probabilities by part of the data, and the draws that they are of."""

    probs: Mapping[str, NDArray[Any]]
    draws: Sequence[Draw]


def predictions_of(
    method: str,
    value: str,
    runs: Sequence[Run],
    setting: Setting,
    source: Source,
    outside: Images,
    folder: Path,
    count: int,
) -> Predictions:
    """What a method predicts, with one value of its hyperparameter."""
    model, draws = _averaged(method, value, runs, setting, source, folder, count)
    parts = {"validation": source.later, "outside": outside, "test": source.test}
    probs = {
        name: _probs(method, model, draws, setting, source, images)
        for name, images in parts.items()
    }
    return Predictions(probs, draws)


def _averaged(
    method: str,
    value: str,
    runs: Sequence[Run],
    setting: Setting,
    source: Source,
    folder: Path,
    count: int,
) -> tuple[nn.Module, Sequence[Draw]]:
    """The last network that was trained, and the weights that a method averages over."""
    found = [draw for run in runs for draw in trained(run, setting.network, source, folder)]
    model = setting.network.make(source.classes)
    model.load_state_dict(found[-1].tensors())
    return model, _draws(method, value, model, found, setting, source, count)


def _probs(
    method: str,
    model: nn.Module,
    draws: Sequence[Draw],
    setting: Setting,
    source: Source,
    images: Images,
) -> NDArray[Any]:
    batches = PlainBatches(images, source.standard)
    if method == LINEAR:
        rows = [linearised_probs(model.eval(), draws, inputs) for inputs, _ in batches]
        return torch.cat(rows).clamp(min=SMALLEST).cpu().numpy()
    return methods.predict(posterior_of(setting.network, source, draws), batches).probs_numpy()


def trained(run: Run, network: Network, source: Source, folder: Path | None) -> Sequence[Draw]:
    """The draws of a run; masks of dropout are torch's, from the run's seed."""
    rate = run.dropout if isinstance(run, RivalRun) else 0.0
    if not rate:
        return sample(run, network, source, folder)
    known = {field.name: getattr(network, field.name) for field in fields(Network)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        return sample(run, WithDropout(inner=network, rate=rate, **known), source, folder)


def costs_of(
    chosen: Mapping[str, tuple[str, Sequence[Run]]],
    setting: Setting,
    source: Source,
    folder: Path,
    count: int,
) -> Record:
    """Seconds to train all networks of a method, and to predict the test data with them.

    Training is timed for an epoch, with one thread. All methods are timed in turn, `REPEATS` times,
    and the least counts, so that they can be compared even if other jobs slow down the machine for
    a while.
    """
    training: dict[str, list[float]] = {method: [] for method in chosen}
    predicting: dict[str, list[float]] = {method: [] for method in chosen}
    averaged = {
        method: _averaged(method, value, runs, setting, source, folder, count)
        for method, (value, runs) in chosen.items()
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(REPEATS):
        for method, (_, runs) in chosen.items():
            began = time.perf_counter()
            epoch = replace(runs[0], epochs=1, cycles=1, draws=1)
            trained(epoch, setting.network, source, None)
            training[method].append(time.perf_counter() - began)
            began = time.perf_counter()
            _probs(method, *averaged[method], setting, source, source.test)
            predicting[method].append(time.perf_counter() - began)
    torch.set_num_threads(threads)
    return {
        method: {
            "training": rounded(min(training[method]) * sum(run.epochs for run in runs)),
            "predicting": rounded(min(predicting[method])),
        }
        for method, (_, runs) in chosen.items()
    }


def _draws(
    method: str,
    value: str,
    model: nn.Module,
    found: Sequence[Draw],
    setting: Setting,
    source: Source,
    count: int,
) -> Sequence[Draw]:
    """The weights that a method averages over."""
    batches = list(PlainBatches(source.train, source.standard))
    value = value.split(",", maxsplit=1)[0]  # a step size may follow
    if method == "MC dropout":
        return list(dropout_draws(model, float(value), count, seed=0))
    if method == "SWAG":
        swag = SWAG(model, rank=count)
        for draw in found:
            swag.collect(draw.tensors())
        normalised = any(isinstance(part, nn.BatchNorm2d) for part in model.modules())
        return list(swag.draws(count, seed=0, loader=batches if normalised else None))
    if method.startswith("Laplace"):
        decay = float(value) * setting.network.weight_decay
        if method == LINEAR:
            return list(diagonal_laplace(model, batches, decay, count, seed=0, sampled_labels=True))
        return list(last_layer_laplace(model, batches, decay, count, seed=0))
    return list(found)


def validation_nll(found: Predictions, source: Source) -> float:
    """What the values of a hyperparameter are compared by."""
    return rounded(finite_nll(found.probs["validation"], source.later.labels.numpy()))


def scores_of(found: Predictions, source: Source) -> Record:
    """Scores on test data, and how well the entropy tells other images from them."""
    probs, labels = found.probs["test"], source.test.labels.numpy()
    losses = -np.log(np.maximum(probs[np.arange(len(labels)), labels], SMALLEST))
    entropies = {name: _entropy(found.probs[name]) for name in ("test", "outside")}
    return {
        "tested": len(labels),
        "draws": len(found.draws),
        "error": rounded(1 - accuracy(probs, labels)),
        "nll": rounded(finite_nll(probs, labels)),
        "nll_error": rounded(losses.std(ddof=1) / len(losses) ** 0.5),
        "ece": rounded(calibration_error(probs, labels)),
        "auroc": rounded(auroc(entropies["test"], entropies["outside"])),
    }


def stored_bytes(method: str, draws: Sequence[Draw]) -> int:
    """What must be stored to predict: all draws, or what they are drawn from."""
    tensors = draws[0].tensors()
    network = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if method == "MC dropout":
        return network
    if method == "SWAG":  # mean, variance, and as many deviations as draws
        return (2 + len(draws)) * network
    if method == LINEAR:  # mean and variance
        return 2 * network
    if method.startswith("Laplace"):  # and a triangle of the covariance of the last layer
        weight, bias = list(tensors.values())[-2:]
        size = weight.numel() + bias.numel()
        return network + size * (size + 1) // 2 * weight.element_size()
    return len(draws) * network


def _entropy(probs: NDArray[Any]) -> NDArray[np.float64]:
    kept = np.clip(probs.astype(float), SMALLEST, 1)
    return -(kept * np.log(kept)).sum(-1)
