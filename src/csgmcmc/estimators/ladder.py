"""The rungs of a fit, and the weights of its members: the cycles of each rung."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from csgmcmc.arguments import check_number, shown

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

# A tenth of a row for each member: negligible for many rows, and with fifty rows it keeps one
# member from getting all the weight.
SMOOTHING = 0.1


class Rung(NamedTuple):
    """Some networks sample with one prior, at one temperature."""

    prior_scale: float
    temperature: float
    per_row: bool = False  # whether the noise depends on the row


def make_ladder(prior_scale: Any, temperature: Any, noises: Sequence[bool]) -> tuple[Rung, ...]:
    """A rung for each prior scale and its temperature, which may be one for all.

    With two kinds of noise, all have the first, and the narrower half has the second too.
    """
    scales = _numbers("prior_scale", prior_scale, at_least=1e-10, at_most=1e10)
    temperatures = _numbers("temperature", temperature, at_least=0)
    if len(temperatures) == 1:
        temperatures *= len(scales)
    if len(temperatures) != len(scales):
        got = f"prior_scale={shown(prior_scale)}, temperature={shown(temperature)}"
        raise ValueError(f"temperature must be one number, or one for each prior_scale, got {got}")
    if 0 in temperatures and any(temperatures):
        raise ValueError(f"temperature must be above 0, or 0 alone, got {shown(temperature)}")
    pairs = list(zip(scales, temperatures, strict=True))
    found = [Rung(*pair, noises[0]) for pair in pairs]
    for other in noises[1:]:
        found += [Rung(*pair, other) for pair in pairs[: (len(pairs) + 1) // 2]]
    return tuple(found)


def _numbers(name: str, value: Any, **bounds: float) -> list[float]:
    several = isinstance(value, (tuple, list, np.ndarray))
    found = [check_number(name, each, **bounds) for each in (value if several else [value])]
    if not found:
        raise ValueError(f"{name} must be a number or a list of numbers, got {shown(value)}")
    return found


def make_folds(labels: Numbers, count: int, random: np.random.RandomState) -> list[Numbers]:
    """Row numbers of `count` random folds, with equal shares of each label."""
    order = random.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    return [np.sort(order[first::count]) for first in range(count)]


def gaussian_stacking(
    means: Floats, squares: Floats, targets: Floats, points: Floats
) -> tuple[Floats, float]:
    """Weights of members with the best log score of the Gaussian with their mean and variance.

    It is the score of `predict(return_std=True)`. The log score of the mixture would keep a few
    members with far too much noise, as an insurance for single rows, and they would determine the
    variance of all others.
    Returned is the mean score too, but for a constant.

    Means, and means of the squared targets, are of shape (members, points, outputs), and `points`
    are weights. The problem is not convex: the search begins near the best member.
    """
    each, second, wanted, counts = map(torch.from_numpy, (means, squares, targets, points))
    rounding = 1e-9 + 1e-6 * second.amin(0)  # of a variance that is a difference of squares

    def loss(logits: Floats) -> tuple[float, Floats]:
        free = torch.from_numpy(logits).requires_grad_()
        mean, square = (torch.tensordot(free.softmax(0), some, 1) for some in (each, second))
        variance = (square - mean**2).maximum(rounding)
        scores = -(variance.log() + (wanted - mean) ** 2 / variance).sum(-1) / 2
        value = -(counts @ scores + SMOOTHING * free.log_softmax(0).sum()) / counts.sum()
        value.backward()
        return value.item(), np.asarray(free.grad)

    alone = [np.where(np.arange(len(means)) == one, 0.0, -50.0) for one in range(len(means))]
    best = np.argmin([loss(logits)[0] for logits in alone])
    start = np.where(np.arange(len(means)) == best, 0.0, -np.log(len(means) + 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B")
    weights = np.exp(found.x - found.x.max())
    return weights / weights.sum(), -float(found.fun)
