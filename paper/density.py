"""Chains on a density with a known gradient, without autograd and many steps a call.

The steps are those of `Chain`; what is left out is all that a chain of a network needs: callbacks,
checkpoints, logs, and a look at every loss. The noise is that of the sampler, to the bit, drawn for
many steps at once. With `compile` a block of steps is one kernel, which pays where the points fit
into the cache.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from csgmcmc.samplers import SGHMC, SGLD, Group
from csgmcmc.schedules import Schedule
from paper.arguments import check_count
from paper.targets import LogisticRegression, Target

MOST_NUMBERS = 1 << 16  # of noise that is drawn at once, if that is more than a block
BLOCK = 32  # steps a call: more of them gain little, and take minutes to compile
LOOK_EVERY = 32 * BLOCK  # steps after which to look whether all points are finite

Gradient = Callable[[Tensor, Tensor | None], Tensor]
"""From points and the numbers of data points to the gradient of U / N."""


@torch.no_grad()
def run_density(
    target: Target,
    sampler: SGLD | SGHMC,
    schedule: Schedule,
    *,
    batch_size: int | None = None,
    compile: bool = False,  # noqa: A002  (torch's own name for it)
) -> Tensor:
    """Run the chains of `sampler` along `schedule`; the draws, of shape (draws, chains, dimension).

    Args:
        target: the density.
        sampler: `SGLD` or `SGHMC` over one tensor of points, of shape (chains, dimension), which
            it moves.
        schedule: which steps to take, and which draws to keep.
        batch_size: of a `LogisticRegression`, take so many of the data at random for each step,
            the same for all chains, in place of all of them.
        compile: make one kernel of a block of steps; the first call takes some seconds.
    """
    points, group = _points_of(sampler)
    gradient = _gradient_of(target, group, batch_size)
    block = torch.compile(run_block, dynamic=False) if compile else run_block
    lrs, stds, hot, collect = _plan(sampler, group, points, schedule)
    num_data = getattr(target, "num_data", 0)
    batches = torch.Generator().manual_seed(sampler.noise.seed % 2**63)
    velocity = sampler.state[points].get("velocity", torch.zeros_like(points))
    momentum = points.new_tensor(group.get("momentum", 0.0))
    kept: list[Tensor] = []
    ahead = _steps_of_noise_at_once(points)
    noise = points.new_empty(0)
    for first in range(0, schedule.steps, BLOCK):
        here = slice(first, first + BLOCK)
        steps = len(lrs[here])
        rows = None
        if batch_size is not None:
            rows = torch.randint(num_data, (steps, batch_size), generator=batches)
        if first % ahead == 0:
            noise = _noise(sampler, points, hot[first : first + ahead])
        run = block if steps == BLOCK else run_block  # another length would be compiled anew
        path, velocity = run(
            gradient,
            points.detach(),
            velocity,
            momentum,
            lrs[here],
            stds[here],
            noise[first % ahead : first % ahead + steps],
            rows,
        )
        points.copy_(path[-1])
        looks = first % LOOK_EVERY == 0 or first + steps == schedule.steps
        if looks and not path[-1].isfinite().all():
            raise ValueError(f"points are no longer finite at step {first + steps - 1}: lower lr")
        if collect[here].all():
            kept.append(path)
        elif collect[here].any():
            kept.append(path[torch.as_tensor(collect[here])])
    if isinstance(sampler, SGHMC):
        sampler.state[points]["velocity"] = velocity
    return torch.cat(kept) if kept else points.new_empty(0, *points.shape)


def run_block(
    gradient: Gradient,
    points: Tensor,
    velocity: Tensor,
    momentum: Tensor,
    lrs: Tensor,
    stds: Tensor,
    noise: Tensor,
    rows: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Some steps of SGHMC, which at momentum 0 is SGLD; all points, and the last velocity."""
    path = []
    for step in range(len(noise)):
        pull = gradient(points, None if rows is None else rows[step])
        velocity = momentum * velocity - lrs[step] * pull + stds[step] * noise[step]
        points = points + velocity
        path.append(points)
    return torch.stack(path), velocity


def _points_of(sampler: SGLD | SGHMC) -> tuple[Tensor, Group]:
    if type(sampler) not in (SGLD, SGHMC):
        raise ValueError(
            f"sampler must be SGLD or SGHMC, got {type(sampler).__name__}: use Chain for others"
        )
    groups = sampler.param_groups
    if len(groups) != 1 or len(groups[0]["params"]) != 1 or groups[0]["params"][0].ndim != 2:
        raise ValueError("sampler must be over one tensor of points, of shape (chains, dimension)")
    return groups[0]["params"][0], groups[0]


def _gradient_of(target: Target, group: Group, batch_size: int | None) -> Gradient:
    """The gradient of U / N, from the target's closed form."""
    if group["prior"] is not None:
        raise ValueError("prior must be None: a target has its own")
    if batch_size is None:
        if group["weight_decay"] != 0:
            raise ValueError("weight_decay must be 0: a target has its own prior")
        scale = 1 / group["num_data"]
        return lambda points, _: target.gradient(points) * scale
    check_count("batch_size", batch_size, at_least=1)
    if not isinstance(target, LogisticRegression):
        raise ValueError(f"{type(target).__name__} has no data to take batches of")
    if group["num_data"] != target.num_data or group["weight_decay"] != target.weight_decay:
        raise ValueError(
            f"with batch_size, the sampler needs num_data={target.num_data} and "
            f"weight_decay={target.weight_decay!r}, as target.num_data and target.weight_decay"
        )
    decay = group["weight_decay"]
    return lambda points, rows: target.mean_loss_gradient(points, rows) + decay * points


def _plan(
    sampler: SGLD | SGHMC, group: Group, points: Tensor, schedule: Schedule
) -> tuple[Tensor, Tensor, np.ndarray, np.ndarray]:
    """Of every step: lr, the noise's standard deviation, whether there is any, and what is kept."""
    table = schedule.table()
    lrs = group["initial_lr"] * table["lr_scale"]
    temperatures = group["initial_temperature"] * table["temperature_scale"]

    @cache  # cycles repeat each other
    def std(lr: float, temperature: float) -> float:
        options = {**group, "lr": lr, "temperature": temperature}
        return math.sqrt(sampler.injected_variance(options, points))

    stds = [std(*at) for at in zip(lrs.tolist(), temperatures.tolist(), strict=True)]
    return (
        torch.as_tensor(lrs, dtype=points.dtype),
        points.new_tensor(stds),
        temperatures > 0,
        table["collect"],
    )


def _steps_of_noise_at_once(points: Tensor) -> int:
    blocks = MOST_NUMBERS // (BLOCK * points.numel())
    return BLOCK * min(max(blocks, 1), LOOK_EVERY // BLOCK)


def _noise(sampler: SGLD | SGHMC, points: Tensor, hot: np.ndarray) -> Tensor:
    """The noise of each step; zeros for steps at temperature 0, which draw none."""
    steps = len(hot)
    if hot.any():
        noise = sampler.noise.ahead(points, steps)
        noise[torch.as_tensor(~hot)] = 0
    else:
        noise = points.new_zeros(steps, *points.shape)
    sampler.noise.step += steps
    return noise
