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
TOLERANCE = 0.1  # relative error of the stationary variance that is allowed


def conformance(
    sampler: type[Sampler],
    *,
    lr: float = 0.05,
    num_data: float = 10.0,
    steps: int = 1000,
    chains: int = 20_000,
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
        **options: other arguments of the constructor.
    """
    options = {"lr": lr, "num_data": num_data, **options}

    def made(seed: int | None = 1, size: int = 50, **more: Any) -> Sampler:
        points: Any = [torch.linspace(-1, 1, size, dtype=torch.float64)]
        return sampler(points, **{**options, "seed": seed, **more})

    def resumed(at: int) -> Tensor:
        before, after = made(), made(seed=None)
        _take(after, 0).copy_(_take(before, at))
        after.load_state_dict(before.state_dict())
        return _take(after, STEPS - at)

    cold = [_take(made(seed, temperature=0.0), STEPS) for seed in (1, 2)]
    warm, again, other = (_take(made(seed), STEPS) for seed in (1, 1, 2))
    same = torch.equal(warm, again) and not torch.equal(warm, other)
    continues = all(torch.equal(warm, resumed(at)) for at in range(STEPS))
    declared = sampler.stationary_variance(1.0, **options)
    return {
        "cold": Verdict(torch.equal(*cold), "at temperature 0 nothing is random"),
        "seeded": Verdict(same, "runs of the same seed, and no others, are equal"),
        "resumed": Verdict(continues, f"saved and loaded after any of {STEPS} steps it continues"),
        "noise": _check_noise(made(size=chains, weight_decay=0.0)),
        "variance": _check_variance(made(size=chains), steps, declared),
    }


def _take(sampler: Sampler, steps: int) -> Tensor:
    """The weights after steps on the quadratic loss, of which each weight is a chain."""
    points = sampler.param_groups[0]["params"][0]
    for _ in range(steps):
        points.grad = points.clone()
        sampler.step()
    return points


def _check_noise(sampler: Sampler) -> Verdict:
    _take(sampler, 0).zero_()  # where the gradient is 0
    points = _take(sampler, 1)
    declared = sampler.injected_variance(sampler.param_groups[0], points)
    if declared is None:
        return Verdict(None, "injected_variance is not declared")
    moved = points / torch.as_tensor(declared).clamp(min=1e-300).sqrt()
    chance = float(stats.kstest(moved.numpy(), "norm").pvalue)
    words = f"a step without gradient has {number(float(moved.var()))} times the declared variance"
    return Verdict(chance > ALPHA, words)


def _check_variance(chain: Sampler, steps: int, declared: float) -> Verdict:
    generator = torch.Generator().manual_seed(0)
    points = _take(chain, 0).normal_(0, math.sqrt(declared), generator=generator)
    ratio = float(_take(chain, steps).var()) / declared
    error = ratio * float(stats.norm.isf(ALPHA / 2)) * math.sqrt(2 / points.numel())
    found = Interval(ratio, ratio - error, ratio + error)
    words = f"{found} times the declared stationary variance (to {TOLERANCE:.0%})"
    return Verdict(found.within(1 - TOLERANCE, 1 + TOLERANCE), words)
