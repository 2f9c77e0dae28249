r"""Stochastic gradient Nose-Hoover thermostat, with one thermostat for every weight.

    v     <- (1 - xi) * v - lr * grad + sqrt(2 * a * lr * T / N) * eps,    eps ~ N(0, I)
    theta <- theta + v
    xi    <- min(1, xi + coupling * (v^2 * (1 - xi / 2) * N / (lr * T) - 1))

with grad the gradient of U / N, a = 1 - momentum, and xi = a at the start (Ding et al., "Bayesian
Sampling Using Stochastic Gradient Thermostats", NeurIPS 2014; one thermostat per weight as in Gan
et al., "Scalable Deep Poisson Factor Analysis for Topic Modeling", ICML 2015). The friction xi
adapts to minibatch noise of unknown size, which SGHMC has to be told. At T = 0 this is SGD with
momentum 1 - a, and xi is neither updated nor used: a negative friction, frozen, would drive its
weight away for as long as T is 0.

The factor 1 - xi / 2 belongs to the discrete update: with friction xi per step, v^2 averages
(lr * T / N) * 2 / (2 - xi) where theta has the right variance. Driving it to lr * T / N would leave
theta too cold. The bound xi <= 1 only matters when a chain comes out of an exploration too hot.
In equilibrium the variance of xi is about `coupling`.
"""

import math
from typing import Any

import torch
from torch import Tensor

from csgmcmc.samplers import Group, Sampler

MAX_FLOAT32 = torch.finfo(torch.float32).max


class SGNHT(Sampler):
    """v <- (1 - xi) * v - lr * grad + sqrt(2 * a * lr * T / N) * eps; the friction xi adapts.

    Args:
        momentum: 1 - a; also the momentum 1 - xi at the start.
        coupling: how fast the thermostat adapts; at 0 this is SGHMC.

    Other arguments: see `Sampler`.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        num_data: float,
        momentum: float = 0.9,
        coupling: float = 1e-3,
        **common: Any,
    ) -> None:
        options = {"momentum": momentum, "coupling": coupling}
        super().__init__(params, lr, num_data=num_data, options=options, **common)

    def injected_variance(self, group: Group, param: Tensor) -> float:
        return 2 * (1 - group["momentum"]) * _kinetic_target(group)

    def update(self, group, params, gradients, noise, states) -> None:
        velocities, target = states("velocity"), _kinetic_target(group)
        noise = noise if target > 0 else None
        if noise is None:
            frictions = []
            torch._foreach_mul_(velocities, group["momentum"])
        else:
            start = 1 - group["momentum"]
            frictions = states("friction", lambda param: torch.full_like(param, start))
            torch._foreach_addcmul_(velocities, velocities, frictions, value=-1)
        torch._foreach_add_(velocities, gradients, alpha=-group["lr"])
        if noise is not None:
            std = math.sqrt(self.injected_variance(group, params[0]))
            torch._foreach_add_(velocities, noise, alpha=std)
        torch._foreach_add_(params, velocities)
        if noise is not None:
            kinetic = torch._foreach_mul(frictions, -0.5)
            torch._foreach_add_(kinetic, 1)
            torch._foreach_mul_(kinetic, velocities)
            torch._foreach_mul_(kinetic, velocities)
            gain = min(group["coupling"] / target, MAX_FLOAT32)
            torch._foreach_add_(frictions, kinetic, alpha=gain)
            torch._foreach_sub_(frictions, group["coupling"])
            torch._foreach_clamp_max_(frictions, 1)


def _kinetic_target(group: Group) -> float:
    """The mean of v^2 in continuous time."""
    return group["lr"] * group["temperature"] / group["num_data"]
