"""The learning-rate range test: how large a step may be.

A copy of the model is trained at temperature 0 while lr grows by a constant factor per step (Smith,
"Cyclical Learning Rates for Training Neural Networks", WACV 2017). While lr is small the loss stays
constant; then it falls; and past the stability limit, 2 / curvature for SGD on a quadratic, it
rises again. The suggestion is a tenth of the lr at which half of the fall is undone, which leaves
room for the curvature to grow during training.

From trained weights the loss has nowhere to fall. There the suggestion is a thirtieth of the lr at
which the loss has doubled, and risen by more than it varies between batches: at weights that fit
their data the curvature may be far below that of their neighbourhood. A little noise moves the
weights away from the mode, where gradients are 0 and large steps would do no harm for long.
"""

import copy
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from csgmcmc.arguments import check_count, check_number
from csgmcmc.errors import DivergedError
from csgmcmc.loaders import Loss, size_of
from csgmcmc.loop import Chain, StepInfo
from csgmcmc.randomness import preserved_random_state
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.schedules import Ramp

Array = NDArray[np.float64]
MakeSampler = Callable[[list[nn.Parameter], float], Sampler]

SAFETY_FACTOR = 10.0  # between the limit and the suggestion
LOSS_RISE_TO_STOP = 2.0  # relative to the loss at the start
SAFETY_FACTOR_IF_TRAINED = 30.0
MIN_RISE_IF_TRAINED = 3.0  # in standard deviations of a batch's loss
TEST_TEMPERATURE = 1e-3  # from trained weights: so low that heat does not raise the loss


@dataclass(frozen=True, eq=False)
class SuggestedLR:
    """The result of a range test; `float()` of it is `lr`.

    Attributes:
        lr: the suggestion, for the start of each cycle.
        limit: lr at which the loss rises again; the highest lr that was tried, if it never does.
        lrs: the values tried, ascending.
        losses: minibatch loss at each of them.
        smoothed: running median of the losses.
    """

    lr: float
    limit: float
    lrs: Array = field(repr=False)
    losses: Array = field(repr=False)
    smoothed: Array = field(repr=False)

    def __float__(self) -> float:
        return self.lr


def suggest_lr(
    model: nn.Module,
    loss: Loss,
    loader: Iterable[Any],
    *,
    sampler: type[Sampler] | MakeSampler = SGHMC,
    lowest: float = 1e-6,
    highest: float = 100.0,
    steps: int = 200,
    trained: bool = False,
    **chain_options: Any,
) -> SuggestedLR:
    """Find a step size for a model, its loss and its data.

    The model, the loader and all random states are left unchanged.

    Args:
        model: the network, at the weights that training will start from.
        loss: mean negative log-likelihood, as `Chain` takes it.
        loader: the training data.
        sampler: a class of samplers, or a function from parameters and an lr to a sampler, e.g.
            `lambda params, lr: SGHMC(params, lr, num_data=1000, momentum=0.5)`. N and temperature
            matter only with `trained`, where N is that of the loader for a class of samplers.
        lowest: lr of the first step, too small to change the loss.
        highest: lr of the last step, too large to train with.
        steps: number of steps; more of them help if the loss is noisy.
        trained: the model is trained already, so that the loss need not fall.
        chain_options: further arguments of `Chain`, e.g. `accumulate=2`.
    """
    make_sampler: Any = sampler
    if isinstance(sampler, type):
        size = size_of(loader) if trained else 1.0
        make_sampler = partial(make_sampler, num_data=size, temperature=TEST_TEMPERATURE)
    check_count("steps", steps, at_least=50)
    check_number("lowest", lowest, above=0)
    check_number("highest", highest, above=lowest)
    lrs: list[float] = []
    losses: list[float] = []

    def record(info: StepInfo) -> None:
        lrs.append(info.lr)
        losses.append(info.loss)
        start, recent = float(np.median(losses[:5])), float(np.median(losses[-5:]))
        if recent > start + LOSS_RISE_TO_STOP * max(1.0, abs(start)):
            raise DivergedError("the loss", info.tick, info.lr, [0])  # ends the test early

    copied = copy.deepcopy(model)
    params = [param for param in copied.parameters() if param.requires_grad]
    heat = 1.0 if trained else 0.0
    schedule = Ramp(steps, lowest / highest, 1.0, shape="exponential", temperature_scale=heat)
    options = {**chain_options, "watch": False, "progress": False, "callbacks": record}
    chain = Chain(copied, loss, loader, make_sampler(params, highest), schedule, **options)
    generators = chain.stepper.generators
    with preserved_random_state(generators), suppress(DivergedError):
        chain.run()
    return _read(np.array(lrs), np.array(losses), steps, highest, trained)


def _read(lrs: Array, losses: Array, steps: int, highest: float, trained: bool) -> SuggestedLR:
    """The suggestion of a curve, or a `ValueError` if the loss never fell."""
    if len(losses) < 5:
        raise ValueError(
            "the loss is not finite, or rises at once, at the lowest lr that was tried: check "
            "the data and the loss for NaN and infinity, or set lr yourself"
        )
    window = max(5, steps // 20)  # of running medians
    half = window // 2
    near = [losses[max(0, at - half) : at + half + 1] for at in range(len(losses))]
    smoothed = np.array([np.median(part) for part in near])
    start = float(np.median(losses[:window]))
    best = int(smoothed.argmin())
    lowest = float(smoothed[best])
    fall = start - lowest
    early = losses[: 2 * window]
    spread = 1.4826 * np.median(np.abs(early - np.median(early)))  # estimates the std, robustly
    if trained:
        rise = max(abs(lowest), fall / 2, MIN_RISE_IF_TRAINED * float(spread))
        high = np.flatnonzero(smoothed[best:] > lowest + rise)
        limit = float(lrs[best + high[0]] if len(high) else lrs[-1])
        lr = float(f"{limit / SAFETY_FACTOR_IF_TRAINED:.2g}")
        return SuggestedLR(lr, limit, lrs, losses, smoothed)
    noise = 1.25 / math.sqrt(window) * float(spread)  # standard error of a median
    if fall <= max(3 * noise, 1e-3 * abs(start)):
        raise ValueError(
            f"the loss never fell from the {start:.4g} that it began with, beyond its noise, at "
            f"any lr from {lrs[0]:.2g} to {lrs[-1]:.2g}: the model does not learn in {steps} "
            "steps; check the loss and the labels, take larger batches, set lr yourself, or call "
            "csgmcmc.suggest_lr with more steps"
        )
    risen = np.flatnonzero(smoothed[best:] > smoothed[best] + fall / 2)
    end = best + int(risen[0]) if len(risen) else len(lrs)
    stopped = len(losses) < steps  # early, because the loss was too high
    limit = float(lrs[end]) if end < len(lrs) else float(lrs[-1]) if stopped else highest
    good = np.flatnonzero(smoothed[:end] <= smoothed[best] + fall / 10)
    lr = min(limit / SAFETY_FACTOR, float(lrs[good[-1]]))
    if end == len(lrs) and not stopped:  # no lr was too high
        fallen = np.flatnonzero(smoothed <= start - fall / 2)
        lr = min(lr, SAFETY_FACTOR * float(lrs[fallen[0]]))
    return SuggestedLR(float(f"{lr:.2g}"), limit, lrs, losses, smoothed)
