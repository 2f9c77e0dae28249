"""What a sampler must do, asked of one's own as the tests of this library ask it of theirs."""

import math
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from csgmcmc.checks.verdict import Interval, Verdict, number
from csgmcmc.samplers import Sampler

ALPHA = 1e-5  # false-alarm rate of the tests of noise and variance
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

    - `cold`: at temperature 0 runs of different seeds are equal;
    - `seeded`: else the seed decides, and only the seed;
    - `resumed`: with its state saved and loaded between any two steps it continues bit for bit;
    - `noise`: a step without gradient has the variance of `injected_variance`;
    - `variance`: on a quadratic loss the chains have the variance of `stationary_variance`.

    A right sampler gets a no with a probability of about 2e-5.

    Args:
        sampler: the class.
        lr: step size; the curvature of the quadratic loss is 1.
        num_data: N.
        steps: after which the chains have forgotten where they started.
        chains: number of independent chains.
        tolerance: relative error of the variance that is allowed.
        **options: other arguments of the constructor.
    """
    options = {"lr": lr, "num_data": num_data, **options}

    def taken(count: int, seed: int | None = 1, size: int = 50, **more: Any) -> Sampler:
        """A sampler after steps on the quadratic loss, of which each weight is a chain."""
        points: Any = [torch.linspace(-1, 1, size, dtype=torch.float64)]
        return _take(sampler(points, **{**options, "seed": seed, **more}), count)

    def resumed(at: int) -> Tensor:
        before, after = taken(at), taken(0, seed=None)
        after.load_state_dict(before.state_dict())
        _points(after).copy_(_points(before))
        return _points(_take(after, STEPS - at))

    cold = [_points(taken(STEPS, seed, temperature=0.0)) for seed in (1, 2)]
    warm, again, other = (_points(taken(STEPS, seed)) for seed in (1, 1, 2))
    same = torch.equal(warm, again) and not torch.equal(warm, other)
    continues = all(torch.equal(warm, resumed(at)) for at in range(STEPS))
    declared = sampler.stationary_variance(1.0, **options)
    return {
        "cold": Verdict(torch.equal(*cold), "at temperature 0 nothing is random"),
        "seeded": Verdict(same, "runs of the same seed, and no others, are equal"),
        "resumed": Verdict(continues, f"saved and loaded after any of {STEPS} steps it continues"),
        "noise": _check_noise(taken(0, size=chains, weight_decay=0.0)),
        "variance": _check_variance(taken(0, size=chains), steps, declared, tolerance),
    }


def _points(sampler: Sampler) -> Tensor:
    return sampler.param_groups[0]["params"][0]


def _take(sampler: Sampler, steps: int) -> Sampler:
    points = _points(sampler)
    for _ in range(steps):
        points.grad = points.clone()
        sampler.step()
    return sampler


def _check_noise(sampler: Sampler) -> Verdict:
    points = _points(sampler).zero_()
    points.grad = torch.zeros_like(points)
    sampler.step()
    declared = sampler.injected_variance(sampler.param_groups[0], points)
    if declared is None:
        return Verdict(None, "injected_variance is not declared")
    moved = points / torch.as_tensor(declared).clamp(min=1e-300).sqrt()
    chance = float(stats.kstest(moved.numpy(), "norm").pvalue)
    words = f"a step without gradient has {number(float(moved.var()))} times the declared variance"
    return Verdict(chance > ALPHA, words)


def _check_variance(chain: Sampler, steps: int, declared: float, tolerance: float) -> Verdict:
    points = _points(chain)
    start = torch.randn(points.shape, generator=torch.Generator().manual_seed(0))
    points.copy_(math.sqrt(declared) * start)
    ratio = float(_points(_take(chain, steps)).var()) / declared
    error = ratio * float(stats.norm.isf(ALPHA / 2)) * math.sqrt(2 / points.numel())
    found = Interval(ratio, ratio - error, ratio + error)
    words = f"{found} times the declared stationary variance (to {tolerance:.0%})"
    return Verdict(found.within(1 - tolerance, 1 + tolerance), words)
