"""Eight methods on one network: what the runs of `uncertainty` are made of.

Methods of one step size that begin alike, without noise, share that beginning: SGD and SGLD up to
the end of the burn-in, Snapshot and cSGLD up to the first sampling stage. Each then goes on from a
copy of the state, to the same numbers as if it had been run alone.
"""

import copy
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from csgmcmc.diagnostics import (
    accuracy,
    auroc,
    calibration_error,
    cumulative_distribution,
    negative_log_likelihood,
)
from csgmcmc.draws import MemoryDraws
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import SGHMC, SGLD, Sampler
from csgmcmc.schedules import Constant, Cyclical, Joined, Schedule
from paper.experiments.base import Record
from paper.networks import mlp

GAMMA = 0.5005
CLASSES = 10
LOW_ENTROPIES = (0.1, 0.5, 1.0)
"""In nats; the largest entropy of ten classes is log 10 = 2.3."""
ENTROPY_GRID = np.linspace(0, math.log(CLASSES), 101)


class Points(NamedTuple):
    """Images, and their labels."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class Method:
    """Sampler x schedule; one that is not `hot` is at temperature 0."""

    name: str
    sampler: type[SGLD] | type[SGHMC]
    cyclical: bool
    hot: bool


METHODS = (
    Method("SGD", SGLD, cyclical=False, hot=False),
    Method("SGDM", SGHMC, cyclical=False, hot=False),
    Method("Snapshot-SGD", SGLD, cyclical=True, hot=False),
    Method("Snapshot-SGDM", SGHMC, cyclical=True, hot=False),
    Method("SGLD", SGLD, cyclical=False, hot=True),
    Method("SGHMC", SGHMC, cyclical=False, hot=True),
    Method("cSGLD", SGLD, cyclical=True, hot=True),
    Method("cSGHMC", SGHMC, cyclical=True, hot=True),
)


@dataclass(frozen=True)
class Plan:
    """How long a run is, and how it is divided. The draws are as many for all samplers.

    Args:
        epochs: of every method.
        burn_in: epochs of SGLD and SGHMC at the full step size, without noise.
        cycles: M.
        exploration: beta.
        draws_per_cycle: of cSGLD and cSGHMC; Snapshot keeps one a cycle, SGD one in all.
    """

    epochs: int
    burn_in: int
    cycles: int = 4
    exploration: float = 0.8
    draws_per_cycle: int = 3

    def schedule(self, method: Method, epoch: int) -> Schedule:
        """The schedule of a method, `epoch` being the steps of an epoch."""
        steps = self.epochs * epoch
        if method.cyclical:
            draws = self.draws_per_cycle if method.hot else 1
            return Cyclical(steps, self.cycles, exploration=self.exploration, draws_per_cycle=draws)
        if not method.hot:
            return Constant(steps, draws=1)
        # a * k^-gamma, k in epochs: counted in steps, the first epoch alone would take the step
        # size down to a thirtieth, and the 50 "iterations" before it would have taught nothing.
        tail, draws = self.epochs - self.burn_in, self.cycles * self.draws_per_cycle
        kept = np.diff(draws * np.arange(tail + 1) // tail)  # in each epoch of the decay
        decay = [
            Constant(epoch, lr_scale=k**-GAMMA, draws=int(count) or None)
            for k, count in enumerate(kept, start=1)
        ]
        return Joined([Constant(self.burn_in * epoch, temperature_scale=0), *decay])

    def shared_steps(self, *, cyclical: bool, epoch: int) -> int:
        """Steps at the start that methods of one kind have in common, whatever temperature."""
        if cyclical:
            return Cyclical(
                self.epochs * epoch, self.cycles, self.exploration, draws_per_cycle=1
            ).exploration_steps
        return self.burn_in * epoch


class Batches:
    """Shuffled batches; those of a step depend on the seed and the step alone."""

    def __init__(self, data: Points, size: int, seed: int) -> None:
        self.data, self.size, self.seed = data, size, seed
        self._epoch, self._order = -1, torch.empty(0)

    def __len__(self) -> int:
        """Whole batches in an epoch."""
        return len(self.data.images) // self.size

    def of_step(self, step: int) -> tuple[Tensor, Tensor]:
        epoch, index = divmod(step, len(self))
        if epoch != self._epoch:
            shuffle = np.random.default_rng((self.seed, epoch))
            self._epoch = epoch
            self._order = torch.as_tensor(shuffle.permutation(len(self.data.images)))
        rows = self._order[index * self.size : (index + 1) * self.size]
        return self.data.images[rows], self.data.labels[rows]


@dataclass
class Walk:
    """A network on its way. A copy goes on by itself: all that decides its steps is here."""

    model: nn.Module
    sampler: Sampler
    step: int = 0
    losses: list[float] = field(default_factory=list)

    def copy(self, temperature: float) -> "Walk":
        """A copy that goes on at another temperature."""
        twin = copy.deepcopy(self)
        for group in twin.sampler.param_groups:
            group["initial_temperature"] = temperature
        return twin

    def advance(self, schedule: Schedule, batches: Batches, until: int) -> MemoryDraws:
        """Take the steps before `until`, keep the draws, and the losses of the last epoch."""
        draws = MemoryDraws()
        for step in range(self.step, until):
            images, labels = batches.of_step(step)
            tick = schedule.apply(self.sampler, step)
            self.sampler.zero_grad()
            loss = cross_entropy(self.model(images), labels)
            loss.backward()
            self.sampler.step()
            self.losses.append(loss.item())
            if not math.isfinite(self.losses[-1]):
                raise FloatingPointError(f"the loss is not finite at step {step}")
            if tick.collect:
                draws.append(self.model, step=tick.step, cycle=tick.cycle, stage=tick.stage)
        self.step, self.losses = until, self.losses[-len(batches) :]
        return draws


@dataclass(frozen=True)
class Network:
    """What is trained, and with what options that are the same for all methods."""

    sizes: tuple[int, ...]
    batch: int
    momentum: float
    weight_decay: float

    def start(self, sampler: type[SGLD] | type[SGHMC], lr: float, data: int, seed: int) -> Walk:
        """The starting weights of `seed`, with a sampler that is cold until it is copied."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = mlp(*self.sizes)
        own: dict[str, Any] = {"momentum": self.momentum} if sampler is SGHMC else {}
        return Walk(
            model,
            sampler(
                model.parameters(),
                lr,
                num_data=data,
                temperature=0.0,
                weight_decay=self.weight_decay,
                seed=seed,
                **own,
            ),
        )


class Run(NamedTuple):
    """A method that has been run."""

    method: Method
    temperature: float
    posterior: Posterior
    train_loss: float


@dataclass(frozen=True)
class Fork:
    """Where methods of one kind part: each goes on from a copy of the walk that they share."""

    shared: Walk
    plan: Plan
    batches: Batches

    def run(self, method: Method, temperature: float) -> Run:
        """The rest of one method; that of another does not depend on it."""
        schedule = self.plan.schedule(method, len(self.batches))
        walk = self.shared.copy(temperature)
        draws = walk.advance(schedule, self.batches, schedule.steps)
        posterior = Posterior(walk.model, draws, progress=False)
        return Run(method, temperature, posterior, float(np.mean(walk.losses)))


def shared_start(
    kind: Method, network: Network, plan: Plan, data: Points, lr: float, seed: int
) -> Fork:
    """The start of all methods that have the sampler and the kind of schedule of `kind`."""
    batches = Batches(data, network.batch, seed)
    walk = network.start(kind.sampler, lr, len(data.images), seed)
    shared = plan.shared_steps(cyclical=kind.cyclical, epoch=len(batches))
    walk.advance(plan.schedule(kind, len(batches)), batches, shared)
    return Fork(walk, plan, batches)


def predict(posterior: Posterior, points: Points) -> ClassPredictive:
    """The averaged prediction, a thousand points at a time."""
    batches = zip(points.images.split(1000), points.labels.split(1000), strict=True)
    predictive = posterior.predict_loader(batches)
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (digits are classes)
    return predictive


def scores(run: Run, test: Points, outside: Tensor) -> Record:
    """Scores on test data, and the entropy on images of classes that were never seen."""
    tested = predict(run.posterior, test)
    unseen = predict(run.posterior, Points(outside, torch.zeros(len(outside)))).entropy.numpy()
    probabilities, labels = tested.probs_numpy(), tested.labels_numpy()
    return {
        "method": run.method.name,
        "temperature": run.temperature,
        "draws": len(run.posterior.draws),
        "train_loss": _rounded(run.train_loss),
        "error": _rounded(1 - accuracy(probabilities, labels)),
        "nll": _rounded(negative_log_likelihood(probabilities, labels)),
        "ece": _rounded(calibration_error(probabilities, labels)),
        "auroc": _rounded(auroc(tested.entropy.numpy(), unseen)),
        "entropy_test": _rounded(tested.entropy.mean()),
        "entropy_outside": _rounded(unseen.mean()),
        "below": [_rounded(share) for share in cumulative_distribution(unseen, LOW_ENTROPIES)],
        "cdf": [_rounded(share) for share in cumulative_distribution(unseen, ENTROPY_GRID)],
    }


def validation_nll(run: Run, validation: Points) -> float:
    """NLL of the averaged prediction on validation data."""
    predictive = predict(run.posterior, validation)
    return negative_log_likelihood(predictive.probs_numpy(), predictive.labels_numpy())


def _rounded(value: float | Tensor | np.floating) -> float:
    return round(float(value), 5)
