"""How much of a chain's noise is injected, and how much comes from minibatches."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from csgmcmc.arguments import check_number
from csgmcmc.diagnostics.arrays import check_numbers


@dataclass(frozen=True)
class EffectiveNoise:
    """The noise that one step adds to a weight, as variances averaged over the weights.

    `injected` is the sampler's own, `minibatch` that of the gradient, `ratio` injected / minibatch.
    `temperature_factor`, 1 + minibatch / injected, is the ratio of the chain's temperature to that
    of the injected noise alone: to `temperature`, if the sampler's `gradient_variance` is 0. For
    SGLD and SGHMC on a quadratic it is exact for batches drawn independently. For shuffled epochs,
    whose noise partly cancels, it is an upper bound.
    """

    injected: float
    minibatch: float
    ratio: float
    temperature_factor: float


def effective_noise(
    injected_variance: ArrayLike, gradient_variance: ArrayLike, lr: float
) -> EffectiveNoise:
    """Compare the injected noise with that of the minibatches, lr^2 * their gradient's variance.

    `injected_variance` is that of `sampler.injected_variance`, `gradient_variance` the variance of
    the minibatch gradient of U / N; each is one number, or one for each weight. The ratio is
    infinite if minibatches add no noise, the factor if no noise is injected.
    """
    check_number("lr", lr, at_least=0)
    means = []
    given = {"injected_variance": injected_variance, "gradient_variance": gradient_variance}
    for name, variances in given.items():
        values = check_numbers(name, variances)
        if not values.size or not np.all(values >= 0):
            raise ValueError(f"{name} must hold variances, at least 0, got {variances!r}")
        means.append(float(values.mean()))
    injected, minibatch = means[0], lr**2 * means[1]
    if minibatch == 0:
        return EffectiveNoise(injected, minibatch, ratio=math.inf, temperature_factor=1.0)
    factor = 1 + minibatch / injected if injected else math.inf
    return EffectiveNoise(injected, minibatch, injected / minibatch, factor)
