"""How large a step may be: a range test.

A copy of the model is trained at temperature 0 while lr grows by a constant factor a step (Smith,
"Cyclical Learning Rates for Training Neural Networks", WACV 2017). While lr is small the loss stays
where it is; then it falls; and where lr is past the limit of stability, 2 / curvature for SGD on a
quadratic, it rises again. The suggestion is a tenth of the lr at which half of the fall is undone,
which leaves room for the curvature to grow as training goes on.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from csgmcmc.arguments import check_count, check_number
from csgmcmc.chain import Chain, StepInfo
from csgmcmc.chain.loop import Loss
from csgmcmc.errors import DivergedError
from csgmcmc.randomness import random_state, restore_random_state
from csgmcmc.recipe import Recipe, size_of
from csgmcmc.schedules import Ramp

Array = NDArray[np.float64]

FEWEST_STEPS = 50
SMOOTHED = 20  # medians are over this part of the steps
MARGIN = 10.0  # below the limit
FAR = 2.0  # how far above its start the loss must be for the test to end early


@dataclass(frozen=True, eq=False)
class SuggestedLR:
    """What a range test has found; `float()` of it is `lr`.

    Attributes:
        lr: the suggestion, for the start of each cycle.
        limit: where the loss rises again; the highest lr that was tried, if it never does.
        lrs: those tried, ascending.
        losses: of a minibatch at each of them.
        smoothed: running median of the losses.
    """

    lr: float
    limit: float
    lrs: Array = field(repr=False)
    losses: Array = field(repr=False)
    smoothed: Array = field(repr=False)

    def __float__(self) -> float:
        return self.lr


class _Enough(Exception):  # noqa: N818  (it is no error)
    """The loss is so high that larger steps need not be tried."""


def suggest_lr(
    model: nn.Module,
    loss: Loss,
    loader: Iterable[Any],
    *,
    recipe: Recipe | None = None,
    num_data: float | None = None,
    lowest: float = 1e-6,
    highest: float = 100.0,
    steps: int = 200,
    **options: Any,
) -> SuggestedLR:
    """Find a step size for a model, its loss and its data.

    The model, the loader and all random states are left as they are.

    Args:
        model: the network, at the weights that training will start from.
        loss: mean negative log-likelihood, as `Chain` takes it.
        loader: the training data.
        recipe: whose sampler, options and weight decay are used; by default those of `Recipe()`.
        num_data: N, which matters only where the recipe has a prior among its options.
        lowest: lr of the first step: so small that nothing happens yet.
        highest: lr of the last step: so large that nothing works any more.
        steps: how many to take; more of them help where the loss is noisy.
        options: those of `Chain`, e.g. `accumulate=2`.
    """
    recipe = Recipe() if recipe is None else recipe
    check_count("steps", steps, at_least=FEWEST_STEPS)
    check_number("lowest", lowest, above=0)
    check_number("highest", highest, above=lowest)
    if isinstance(loader, Iterator):
        raise ValueError("loader is an iterator, which can be read once: give a DataLoader or list")
    lrs: list[float] = []
    losses: list[float] = []

    def record(moment: StepInfo) -> None:
        lrs.append(moment.lr)
        losses.append(moment.loss)
        start, recent = float(np.median(losses[:5])), float(np.median(losses[-5:]))
        if recent > start + FAR * max(1.0, abs(start)):
            raise _Enough

    trained = copy.deepcopy(model)
    if num_data is None:
        num_data = size_of(loader) if "prior" in recipe.options else 1.0
    sampler = recipe.replace(lr=highest, temperature=0.0).make_sampler(
        [param for param in trained.parameters() if param.requires_grad], num_data=num_data
    )
    chain = Chain(
        trained,
        loss,
        loader,
        sampler,
        Ramp(steps, lowest / highest, 1.0, shape="exponential", temperature_scale=0.0),
        **{**options, "watch": False, "progress": False, "on_step": record},
    )
    with _left_as_it_is(loader, chain), suppress(DivergedError, _Enough):
        chain.run()
    return _read(np.array(lrs), np.array(losses), steps, highest)


@contextmanager
def _left_as_it_is(loader: Any, chain: Chain) -> Iterator[None]:
    """Put the random states, and the epoch of a distributed sampler, back to where they were."""
    state = random_state(chain.generators)
    order: Any = getattr(loader, "sampler", None)
    epoch = getattr(order, "epoch", None)
    try:
        yield
    finally:
        if epoch is not None and hasattr(order, "set_epoch"):
            order.set_epoch(epoch)
        restore_random_state(state, chain.generators)


def _read(lrs: Array, losses: Array, steps: int, highest: float) -> SuggestedLR:
    """What a curve says, or a `ValueError` where it says nothing."""
    if len(losses) < 5:
        raise ValueError(
            "the loss is not finite, or rises at once, at the lowest lr that was tried: look at "
            "the data and the loss for numbers that are not finite, or give a lower lowest="
        )
    window = max(5, steps // SMOOTHED)
    smoothed = _running_median(losses, window)
    start = float(np.median(losses[:window]))
    best = int(smoothed.argmin())
    fall = start - float(smoothed[best])
    noise = 1.25 / math.sqrt(window) * _spread(losses[: 2 * window])  # of a median
    if fall <= max(3 * noise, 1e-3 * abs(start)):
        raise ValueError(
            f"the loss never fell from the {start:.4g} that it began with, beyond its noise, at "
            f"any lr from {lrs[0]:.2g} to {lrs[-1]:.2g}: the model does not learn in {steps} "
            "steps; give more steps= or larger batches, look at the loss and the labels, or choose "
            "lr yourself"
        )
    risen = np.flatnonzero(smoothed[best:] > smoothed[best] + fall / 2)
    end = best + int(risen[0]) if len(risen) else len(lrs)
    stopped = len(losses) < steps  # the loss has left the curve
    limit = float(lrs[end]) if end < len(lrs) else float(lrs[-1]) if stopped else highest
    good = np.flatnonzero(smoothed[:end] <= smoothed[best] + fall / 10)
    lr = min(limit / MARGIN, float(lrs[good[-1]]))
    if end == len(lrs) and not stopped:  # all is fitted exactly, or no lr was too high
        fallen = np.flatnonzero(smoothed <= start - fall / 2)
        lr = min(lr, MARGIN * float(lrs[fallen[0]]))
    return SuggestedLR(_rounded(lr), limit, lrs, losses, smoothed)


def _running_median(values: Array, window: int) -> Array:
    half = window // 2
    padded = [values[max(0, at - half) : at + half + 1] for at in range(len(values))]
    return np.array([np.median(part) for part in padded])


def _spread(values: Array) -> float:
    """Standard deviation, from the median of absolute deviations: outliers do not count."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))


def _rounded(value: float) -> float:
    """To two digits: more of them would mean nothing."""
    return float(f"{value:.2g}")
