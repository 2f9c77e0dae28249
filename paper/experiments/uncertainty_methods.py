"""Runs of `uncertainty`.

Methods of one step size that begin alike, without noise, share that beginning: SGD and SGLD up to
the end of the burn-in, Snapshot and cSGLD up to the first sampling stage. Each then continues from
a copy of the state, to the same numbers as if it had been run alone.
"""

import copy
import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import ecdf
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from csgmcmc.diagnostics import auroc
from csgmcmc.draws import MemoryDraws
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Constant, Cyclical, Joined, Schedule
from paper.devices import device
from paper.experiments import methods
from paper.experiments.base import Record
from paper.experiments.methods import BY_NAME, COLD, Network, Run, decay, rounded

CLASSES = 10
LOW_ENTROPIES = (0.1, 0.5, 1.0)
"""In nats; the largest entropy of ten classes is log 10 = 2.3."""
ENTROPY_GRID = np.linspace(0, math.log(CLASSES), 101)


class Points(NamedTuple):
    """Images, and their labels."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True)
class LevelRun(Run):
    """A run whose step size, where it has no cycles, is constant.

    That of SGLD and SGHMC is constant for `burn_in` epochs, and then a * k^-gamma, k in epochs.
    """

    burn_in: int = 0

    def schedule(self, epoch: int) -> Schedule:
        method, steps = BY_NAME[self.method], round(self.epochs * epoch)
        if method.cyclical:
            return super().schedule(epoch)
        if not method.hot:
            return Constant(steps, draws=1)
        burn_in = self.burn_in * epoch
        tail = decay(steps - burn_in, epoch, self.draws)
        return Joined([Constant(burn_in, temperature_scale=0), *tail])

    def shared_steps(self, epoch: int) -> int:
        """Steps at the start that do not depend on the temperature, nor on which draws are kept."""
        schedule = self.schedule(epoch)
        if isinstance(schedule, Cyclical):
            return schedule.exploration_steps
        return self.burn_in * epoch


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

    def run(self, method: str, lr: float, seed: int, **changes: str) -> LevelRun:
        """The chain of a method, at temperature 1/N where there is noise unless `changes` say."""
        return LevelRun.of(
            method,
            lr,
            seed,
            epochs=self.epochs,
            burn_in=self.burn_in,
            cycles=self.cycles,
            exploration=self.exploration,
            draws_per_cycle=self.draws_per_cycle,
            draws=self.cycles * self.draws_per_cycle,
            **changes,
        )


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
    """A network in training. A copy continues by itself: all that decides its steps is here."""

    model: nn.Module
    sampler: Sampler
    step: int = 0
    losses: list[float] = field(default_factory=list)

    @classmethod
    def start(cls, run: Run, network: Network, num_data: int) -> "Walk":
        """The starting weights of a run, with a sampler that is cold until it is copied."""
        model = network.make(CLASSES, run.seed)
        return cls(model, network.sampler(replace(run, temperature=COLD), model, num_data))

    def copy(self, temperature: float) -> "Walk":
        """A copy that continues at another temperature."""
        twin = copy.deepcopy(self)
        for group in twin.sampler.param_groups:
            group["initial_temperature"] = temperature
        return twin

    def advance(self, schedule: Schedule, batches: Batches, until: int) -> MemoryDraws:
        """Take the steps before `until`, keep the draws, and the losses of the last epoch."""
        draws = MemoryDraws()
        for step in range(self.step, until):
            images, labels = (part.to(device()) for part in batches.of_step(step))
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


class Outcome(NamedTuple):
    """What a run has given."""

    run: Run
    temperature: float
    posterior: Posterior
    train_loss: float


@dataclass(frozen=True)
class Fork:
    """Where runs of one kind part: each continues from a copy of the walk that they share."""

    shared: Walk
    batches: Batches

    def finish(self, run: Run) -> Outcome:
        """The rest of one run; that of another does not depend on it."""
        schedule = run.schedule(len(self.batches))
        temperature = run.heat(len(self.batches.data.images))
        walk = self.shared.copy(temperature)
        draws = walk.advance(schedule, self.batches, schedule.steps)
        posterior = Posterior(walk.model, draws, progress=False)
        return Outcome(run, temperature, posterior, float(np.mean(walk.losses)))


def shared_start(run: LevelRun, network: Network, data: Points) -> Fork:
    """The start of all runs with the sampler, step size, seed and kind of schedule of `run`."""
    batches = Batches(data, network.batch, run.seed)
    walk = Walk.start(run, network, len(data.images))
    walk.advance(run.schedule(len(batches)), batches, run.shared_steps(len(batches)))
    return Fork(walk, batches)


def predict(posterior: Posterior, points: Points) -> ClassPredictive:
    """The averaged prediction, a thousand points at a time."""
    batches = zip(points.images.split(1000), points.labels.split(1000), strict=True)
    return methods.predict(posterior, batches)


def scores(outcome: Outcome, test: Points, outside: Tensor) -> Record:
    """Scores on test data, and the entropy on images of classes that were never seen."""
    posterior = outcome.posterior
    tested = predict(posterior, test)
    unseen = predict(posterior, Points(outside, torch.zeros(len(outside)))).entropy.cpu().numpy()
    return {
        "method": outcome.run.method,
        "temperature": outcome.temperature,
        "temperature_label": outcome.run.temperature,
        "draws": len(posterior.draws),
        "train_loss": rounded(outcome.train_loss),
        **methods.scores(tested),
        "auroc": rounded(auroc(tested.entropy.cpu().numpy(), unseen)),
        "entropy_test": rounded(tested.entropy.mean()),
        "entropy_outside": rounded(unseen.mean()),
        "below": [rounded(share) for share in ecdf(unseen).cdf.evaluate(LOW_ENTROPIES)],
        "cdf": [rounded(share) for share in ecdf(unseen).cdf.evaluate(ENTROPY_GRID)],
    }


def validation_nll(outcome: Outcome, validation: Points) -> float:
    """NLL of the averaged prediction on validation data."""
    return methods.nll_of(predict(outcome.posterior, validation))
