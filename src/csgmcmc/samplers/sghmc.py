r"""Stochastic gradient Hamiltonian Monte Carlo.

    v     <- momentum * v - lr * grad + sqrt(2 * (1 - momentum - gamma) * lr * T / N) * eps
    theta <- theta + v,    eps ~ N(0, I),    gamma = lr * N * V / (2 * T)

with grad the gradient of U / N, momentum = 1 - eta, and gamma the correction for minibatch noise
(Chen, Fox and Guestrin, "Stochastic Gradient Hamiltonian Monte Carlo", ICML 2014, in the form of
Zhang et al. 2020). At T = 0 this is SGD with momentum, at momentum 0 it is SGLD.

V is `gradient_variance`, the variance of the noise in each coordinate of the minibatch gradient of
the mean loss. It adds lr^2 * V to the variance of v at every step, and gamma leaves as much out of
the injected noise, at whatever lr and temperature the schedule sets. Where lr^2 * V is more than
all of the noise, none is injected, and the chain is hotter than T. The correction is exact for
batches drawn independently. The noise of a shuffled epoch partly cancels, so there the correction
is too large.
"""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_number
from csgmcmc.noise.fused import FusedTerms
from csgmcmc.samplers.base import CommonOptions, Group, States
from csgmcmc.samplers.fused import FusedSampler
from csgmcmc.samplers.sgld import langevin_variance


class SGHMC(FusedSampler):
    """v <- momentum * v - lr * grad + sqrt(2 * (1 - momentum - gamma) * lr * T / N) * eps.

    Args:
        momentum: 1 - eta, at least 0 and below 1. The paper's eta = 0.9 is momentum 0.1.
        gradient_variance: V, the variance of the minibatch noise in each coordinate of the mean
            gradient, so that gamma = lr * N * V / (2 * T); at most what makes gamma 1 - momentum at
            the initial lr and temperature.
        fused: as for `SGLD`.

    Other arguments: see `Sampler`.
    """

    exact_stationary_variance: ClassVar[bool] = True

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        momentum: float = 0.9,
        gradient_variance: float = 0.0,
        fused: bool | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        options = {"momentum": momentum, "gradient_variance": gradient_variance, "fused": fused}
        super().__init__(params, lr, num_data=num_data, options=options, **common)

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        momentum = check_number("momentum", options["momentum"], at_least=0, below=1)
        variance = check_number("gradient_variance", options["gradient_variance"], at_least=0)
        lr, temperature, num_data = (options[name] for name in ("lr", "temperature", "num_data"))
        gamma = lr * num_data * variance / (2 * temperature) if temperature else 0  # no noise
        if momentum + gamma > 1 + 1e-12:  # 0.9 + 0.1 may be a rounding error above 1
            most = 2 * (1 - momentum) * temperature / (lr * num_data)
            raise ValueError(
                f"gradient_variance must be at most 2 * (1 - momentum) * T / (lr * N) = {most:g}, "
                "where the minibatch noise is all of the noise (lower lr, or use larger batches), "
                f"got {options['gradient_variance']!r}"
            )

    def fused_terms(self, group: Group, states: States) -> FusedTerms:
        std = math.sqrt(self.injected_variance(group, group["params"][0]))
        return FusedTerms(std, states("velocity"))

    def injected_variance(self, group: Group, param: Tensor) -> float:
        corrected = group["lr"] ** 2 * group["gradient_variance"]
        return max(self.uncorrected_variance(group, param) - corrected, 0.0)

    def uncorrected_variance(self, group: Group, param: Tensor) -> float:
        return (1 - group["momentum"]) * langevin_variance(group)

    def update(self, group, params, gradients, noise, states) -> None:
        velocities = states("velocity")
        torch._foreach_mul_(velocities, group["momentum"])
        torch._foreach_add_(velocities, gradients, alpha=-group["lr"])
        if noise is not None:
            std = math.sqrt(self.injected_variance(group, params[0]))
            torch._foreach_add_(velocities, noise, alpha=std)
        torch._foreach_add_(params, velocities)
