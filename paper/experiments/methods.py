"""What the experiments on networks share: the eight methods, networks, runs and scores.

A run is a value: all that decides the draws of one chain. Where the paper leaves a choice:

- The temperature is 1/N, batches have 64 images and weight decay is 5e-4, as in the published CIFAR
  scripts. The paper says T = 0.0045, and nothing of the other two.
- SGD and SGDM: one cosine from the step size to 0, the shape of a cycle; the last weights. SGDM
  has momentum 0.9. The others that have momentum have the paper's eta = 0.9: momentum 0.1.
- SGLD and SGHMC: in three quarters of the epochs the step size falls to a hundredth, along a cosine
  and without noise; then it is a tenth of the first one times k^-0.5005, k in epochs from 1, with
  noise. The cosine and the epochs are ours: no script of these methods is published.

`uncertainty` has other step sizes, see there.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from csgmcmc.diagnostics import accuracy, calibration_error, negative_log_likelihood
from csgmcmc.draws import Draws
from csgmcmc.loop import Chain
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.samplers import SGHMC, SGLD, Sampler
from csgmcmc.schedules import Constant, Cyclical, Decreasing, Joined, Ramp, Schedule
from paper.arguments import check_choice
from paper.devices import device
from paper.experiments.base import Record
from paper.networks import ResNet, mlp, resnet8, resnet18, resnet20, resnet50
from paper.networks.resnet import Bottleneck

FAMILIES = (  # plain, snapshots, traditional sampling, cyclical sampling
    ("SGD", "Snapshot-SGD", "SGLD", "cSGLD"),
    ("SGDM", "Snapshot-SGDM", "SGHMC", "cSGHMC"),
)
COLD, ONE_OVER_N = "0", "1/N"
"""Temperatures, as runs name them."""
GAMMA = 0.5005
BURN_IN = 0.75
LOWEST, TAIL = 0.01, 0.1
"""Shares of the step size: at the end of the burn-in, and at the start of the decay."""
SMALLEST = float(np.finfo(np.float32).tiny)
"""A probability that is rounded to 0 counts as this: an NLL of 87, which a record can hold."""
CHECKPOINT_STEPS = 50  # at least so many between checkpoints: seconds, at any size


@dataclass(frozen=True)
class Method:
    """Sampler x schedule; one that is not `hot` is at temperature 0."""

    name: str
    sampler: type[SGLD] | type[SGHMC]
    cyclical: bool
    hot: bool


METHODS = tuple(
    Method(family[place], sampler, cyclical=place % 2 == 1, hot=place > 1)
    for place in range(4)
    for family, sampler in zip(FAMILIES, (SGLD, SGHMC), strict=True)
)
BY_NAME = {method.name: method for method in METHODS}


@dataclass(frozen=True)
class Run:
    """One chain. `draws` are those of a cycle where there are cycles, else all.

    `temperature` is a number, or "1/N". The last `held_out` of the training data are not used.
    `noise` is that of the stages without draws: none ("late"), as in the others ("always"), or in
    cycles rising from none ("rising"). The decay of SGLD and SGHMC counts k in `decay_in`.
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
    noise: str = "late"
    decay_in: str = "epochs"

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, ("late", "always", "rising"))
        check_choice("decay_in", self.decay_in, ("epochs", "steps"))

    @classmethod
    def of(
        cls,
        method: str,
        lr: float,
        seed: int,
        *,
        cycles: int,
        draws_per_cycle: int,
        draws: int,
        **options: Any,
    ) -> Self:
        """The run of a method: `cycles` if it has cycles, and one draw for each if it is cold.

        `draws` are those of a hot method without cycles.
        """
        kind = BY_NAME[method]
        kept = draws_per_cycle if kind.cyclical else draws
        own = {
            "temperature": ONE_OVER_N if kind.hot else COLD,
            "draws": kept if kind.hot else 1,
            "cycles": cycles if kind.cyclical else 1,
        }
        return cls(method, lr, seed, **{**own, **options})

    def schedule(self, epoch: int) -> Schedule:
        """The schedule of the chain, `epoch` being the steps of an epoch."""
        method, steps = BY_NAME[self.method], round(self.epochs * epoch)
        if method.cyclical or not method.hot:  # plain SGD is one cycle
            return Cyclical(
                steps,
                self.cycles,
                exploration=self.exploration,
                draws_per_cycle=self.draws,
                exploration_temperature=float(self.noise == "always"),
                anneal=self.noise == "rising",
            )
        burn_in = round(BURN_IN * steps)
        start = Ramp(burn_in, 1, LOWEST, "cosine", float(self.noise == "always"))
        if self.decay_in == "steps":
            tail = Decreasing(steps - burn_in, GAMMA, draws=self.draws, lr_scale=TAIL)
            return Joined([start, tail])
        return Joined([start, *decay(steps - burn_in, epoch, self.draws, start=TAIL)])

    def heat(self, num_data: int) -> float:
        """The temperature as a number."""
        return 1 / num_data if self.temperature == ONE_OVER_N else float(self.temperature)


def decay(steps: int, epoch: int, draws: int, start: float = 1.0) -> list[Constant]:
    """Step sizes start * k^-gamma, k in epochs from 1; the draws are evenly spaced.

    Counted in steps, the first epoch alone would take the step size down to a thirtieth.
    """
    ends = np.append(np.arange(0, steps, epoch), steps)
    kept = np.diff(draws * ends // steps)
    return [
        Constant(int(length), lr_scale=start * k**-GAMMA, draws=int(count) or None)
        for k, (length, count) in enumerate(zip(np.diff(ends), kept, strict=True), start=1)
    ]


@dataclass(frozen=True, kw_only=True)
class Network(ABC):
    """What is trained, with options that are the same for all methods."""

    batch: int
    momentum: float
    weight_decay: float = 5e-4

    @abstractmethod
    def build(self, classes: int) -> nn.Module:
        """The network, with weights from torch's global generator."""

    def make(self, classes: int, seed: int = 0) -> nn.Module:
        """The starting weights of `seed`, on the device of the experiment."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build(classes).to(device())

    def momentum_of(self, method: str) -> float:
        """The momentum of a method that has one."""
        return self.momentum

    def sampler(self, run: Run, model: nn.Module, num_data: int) -> Sampler:
        """The sampler of a run."""
        kind = BY_NAME[run.method].sampler
        own: dict[str, Any] = {}
        if kind is SGHMC:
            own["momentum"] = self.momentum_of(run.method)
        return kind(
            model.parameters(),
            run.lr,
            num_data=num_data,
            temperature=run.heat(num_data),
            weight_decay=self.weight_decay,
            seed=run.seed,
            **own,
        )


@dataclass(frozen=True)
class Perceptron(Network):
    """A multi-layer perceptron; the last of its sizes is the number of classes."""

    sizes: tuple[int, ...]
    momentum: float = field(default=0.5, kw_only=True)

    def build(self, classes: int) -> nn.Module:
        return mlp(*self.sizes)


RESNETS = ("resnet8", "resnet18", "resnet20", "resnet50", "tiny")


@dataclass(frozen=True)
class ResidualNetwork(Network):
    """A ResNet; `tiny` has the parts of ResNet-50. SGDM has a momentum of its own.

    `stem_stride` is that of resnet8.
    """

    kind: str
    width: int
    stem_stride: int = field(default=1, kw_only=True)
    momentum: float = field(default=0.1, kw_only=True)
    sgdm_momentum: float = field(default=0.9, kw_only=True)

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, RESNETS)
        if self.width % 8:
            # With 4 channels the backward pass of torch 2 in this memory format corrupts memory.
            raise ValueError(f"width must be a multiple of 8, got {self.width}")

    def build(self, classes: int) -> nn.Module:
        """The network in the memory format that is fastest."""
        if self.kind == "tiny":
            model = ResNet(Bottleneck, (1, 1), width=self.width, classes=classes, large_images=True)
        elif self.kind in ("resnet18", "resnet50"):  # whose width is the paper's
            model = {"resnet18": resnet18, "resnet50": resnet50}[self.kind](classes)
        elif self.kind == "resnet20":
            model = resnet20(classes, self.width)
        else:
            model = resnet8(classes, self.width, self.stem_stride)
        return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def momentum_of(self, method: str) -> float:
        return self.sgdm_momentum if method == "SGDM" else self.momentum


def make_chain(
    run: Run,
    network: Network,
    model: nn.Module,
    batches: Any,
    num_data: int,
    draws: Draws,
    **options: Any,
) -> Chain:
    """The chain of a run; `options` are those of `Chain`."""
    schedule = run.schedule(len(batches))
    return Chain(
        model,
        cross_entropy,
        batches,
        network.sampler(run, model, num_data),
        schedule,
        draws,
        checkpoint_every=max(CHECKPOINT_STEPS, schedule.steps // 100),
        watch=False,  # the settings are the paper's, or tried on purpose
        progress=False,
        **options,
    )


def predict(
    posterior: Posterior, batches: Iterable[tuple[Tensor, Tensor]], members: bool = False
) -> ClassPredictive:
    """The averaged prediction, with those of the single draws if `members`."""
    predictive = posterior.predict_loader(batches, members=members)
    assert isinstance(predictive, ClassPredictive)  # noqa: S101  (the outputs are of classes)
    return predictive


def scores(predictive: ClassPredictive) -> Record:
    """Error, NLL and calibration of the average, and of the single draws if they are kept.

    `nll_error` is the standard error that comes from the number of test points.
    """
    probs, labels, losses = (
        predictive.probs_numpy(),
        predictive.labels_numpy(),
        losses_of(predictive),
    )
    found = {
        "tested": len(labels),
        "error": rounded(1 - accuracy(probs, labels)),
        "nll": rounded(nll_of(predictive)),
        "nll_error": rounded(losses.std(ddof=1) / len(losses) ** 0.5),
        "ece": rounded(calibration_error(probs, labels)),
    }
    if predictive.members is not None:
        members = predictive.member_probs_numpy()
        found["draws"] = len(members)
        found["single_error"] = rounded((members.argmax(-1) != labels).mean())
    return found


def losses_of(predictive: ClassPredictive) -> np.ndarray:
    """Of each data point, the negative log-probability of its label, at most that of `SMALLEST`."""
    labels = predictive.labels_numpy()
    losses = -predictive.log_probs.double().cpu().numpy()[np.arange(len(labels)), labels]
    return np.minimum(losses, -np.log(SMALLEST))


def nll_of(predictive: ClassPredictive) -> float:
    """NLL of the averaged prediction."""
    return finite_nll(predictive.probs_numpy(), predictive.labels_numpy())


def finite_nll(probs: NDArray[Any], labels: NDArray[Any]) -> float:
    """NLL in which no probability is below `SMALLEST`."""
    return negative_log_likelihood(np.maximum(probs, SMALLEST), labels)


def rounded(value: float | Tensor | np.floating) -> float:
    """Digits enough for a table."""
    return round(float(value), 5)
