"""Injected noise against minibatch noise: the ratio of their variances, and what to do about it."""

import math

from torch import Tensor

from csgmcmc.samplers import Sampler
from csgmcmc.samplers.base import Group
from csgmcmc.stepper import LoopWords

NEGLIGIBLE = 0.1  # ratio below which minibatch noise dominates
LARGE = 100  # ratio from which it is written without a fraction
COLD = 0.5  # temperature, minibatch noise included, below which a run is close to optimisation


def noise_ratio(injected: float, minibatch: float) -> float:
    """Injected over minibatch variance; infinite without minibatch noise."""
    return injected / minibatch if minibatch > 0 else math.inf


def describe_noise(ratio: float) -> str:
    if math.isinf(ratio):
        return "the minibatches add no noise"
    digits = 2
    while (float(f"{ratio:.{digits}g}") < NEGLIGIBLE) != (ratio < NEGLIGIBLE):
        digits += 1  # what is below the bound is written so
    times = f"{ratio:.{digits}g}" if ratio < LARGE else f"{float(f'{ratio:.2g}'):,.0f}"
    return f"injected noise is {times} times that of the minibatches"


def noise_advice(ratio: float, temperature: float, words: LoopWords) -> str:
    """What to change if the ratio is negligible; it depends on how hot the minibatches make it."""
    heated = temperature * (1 + 1 / ratio) if ratio else math.inf
    if heated < COLD:
        return (
            "this is close to a snapshot ensemble, not a sample of the posterior; raise "
            f"{words.temperature} or {words.batch_size}, or lower {words.lr}"
        )
    return (
        f"minibatch noise heats the chain to a temperature of up to {heated:.2g}; raise "
        f"{words.batch_size}, lower {words.lr}, or give SGHMC gradient_variance="
    )


def uncorrected_variance(sampler: Sampler, group: Group, param: Tensor) -> Tensor | float | None:
    """Variance of the injected noise of a step, without the correction for minibatch noise.

    A sampler that knows the variance of the gradient injects less by that much; both together
    should have the variance returned here. None if the sampler does not declare its noise.
    """
    if "gradient_variance" in group:
        group = {**group, "gradient_variance": 0.0}
    return sampler.injected_variance(group, param)
