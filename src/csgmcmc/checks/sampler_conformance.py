"""What a sampler of one's own must do, as the tests of this library ask it of every sampler."""

import math
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from csgmcmc.checks.verdict import Interval, Verdict, number
from csgmcmc.samplers import Sampler

ALPHA = 1e-5  # false-alarm rate of each test of noise and variance
CURVATURE = 1.0  # of the quadratic loss
STEPS = 30  # that are compared bit for bit


def conformance(
    sampler: type[Sampler],
    *,
    lr: float = 0.05,
    num_data: float = 10.0,
    steps: int = 1000,
    chains: int = 20_000,
    tolerance: float = 0.1,
    **options: Any,
) -> dict[str, Verdict]:
    """Check a sampler of your own, in seconds.

    The verdicts, by name:

    - `cold`: at temperature 0 two runs with different seeds are equal;
    - `seeded`: at a temperature above 0 the seed decides, and only the seed;
    - `resumed`: with its state saved and loaded between any two steps it continues bit for bit;
    - `noise`: a step without gradient has the variance that `injected_variance` declares;
    - `variance`: on a quadratic loss the chains have the variance of `stationary_variance`.

    `all(verdict.holds is not False for verdict in conformance(MySampler).values())` is a test for
    your own project. A right sampler fails it with a probability of about 2e-5.

    Args:
        sampler: the class.
        lr: step size; the curvature of the loss is 1.
        num_data: N.
        steps: after which the chains have forgotten where they started.
        chains: number of independent chains.
        tolerance: relative error of the variance that is allowed at this lr.
        **options: other arguments of the constructor.
    """
    options = {"lr": lr, "num_data": num_data, **options}

    def made(seed: int = 1, size: int = 50, **more: Any) -> Sampler:
        points = torch.linspace(-1, 1, size, dtype=torch.float64)
        return sampler([points], **{**options, "seed": seed, **more})  # pyright: ignore[reportArgumentType]

    cold = [_points(_take(made(seed, temperature=0.0), STEPS)) for seed in (1, 2)]
    warm = [_points(_take(made(seed), STEPS)) for seed in (1, 1, 2)]
    return {
        "cold": Verdict(torch.equal(*cold), "at temperature 0 nothing is random"),
        "seeded": Verdict(
            torch.equal(warm[0], warm[1]) and not torch.equal(warm[0], warm[2]),
            "runs of one seed are equal, and runs of different seeds are not",
        ),
        "resumed": Verdict(
            all(torch.equal(warm[0], _resumed(made, at)) for at in range(STEPS)),
            f"saved and loaded after any of {STEPS} steps it continues bit for bit",
        ),
        "noise": _check_noise(made(size=chains)),
        "variance": _check_variance(sampler, made(size=chains), steps, options, tolerance),
    }


def _points(sampler: Sampler) -> Tensor:
    return sampler.param_groups[0]["params"][0]


def _take(sampler: Sampler, steps: int) -> Sampler:
    """Take steps on the quadratic loss, of which each weight is a chain."""
    points = _points(sampler)
    for _ in range(steps):
        points.grad = CURVATURE * points.detach()
        sampler.step()
    return sampler


def _resumed(made: Any, at: int) -> Tensor:
    before, after = _take(made(), at), made(seed=None)
    after.load_state_dict(before.state_dict())
    _points(after).copy_(_points(before))
    return _points(_take(after, STEPS - at))


def _check_noise(sampler: Sampler) -> Verdict:
    points = _points(sampler)
    before, points.grad = points.clone(), torch.zeros_like(points)
    group = {**sampler.param_groups[0], "weight_decay": 0.0}
    sampler.param_groups[0]["weight_decay"] = 0.0
    sampler.step()
    declared = sampler.injected_variance(group, points)
    if declared is None:
        return Verdict(None, "injected_variance is not declared")
    moved = (points - before) / torch.as_tensor(declared).clamp(min=1e-300).sqrt()
    chance = float(stats.kstest(moved.numpy(), "norm").pvalue)
    words = f"a step without gradient has {number(float(moved.var()))} times the variance that "
    return Verdict(chance > ALPHA, f"{words}injected_variance declares, and is normal")


def _check_variance(
    sampler: type[Sampler], chain: Sampler, steps: int, options: dict[str, Any], tolerance: float
) -> Verdict:
    declared = sampler.stationary_variance(CURVATURE, **options)
    points = _points(chain)
    points.copy_(torch.randn(points.shape, generator=torch.Generator().manual_seed(0)))
    points.mul_(math.sqrt(declared))
    ratio = float(_points(_take(chain, steps)).var()) / declared
    error = float(stats.norm.isf(ALPHA / 2)) * math.sqrt(2 / points.numel())
    found = Interval(ratio, ratio - error * ratio, ratio + error * ratio)
    words = f"{found} times the declared stationary variance (to {tolerance:.0%})"
    return Verdict(found.within(1 - tolerance, 1 + tolerance), words)
