r"""Stochastic gradient Langevin dynamics.

    theta <- theta - lr * grad + sqrt(2 * lr * T / N) * eps,    eps ~ N(0, I)

with grad the gradient of U / N (Welling and Teh, "Bayesian Learning via Stochastic Gradient
Langevin Dynamics", ICML 2011). At T = 0 this is SGD.
"""

import math
from typing import ClassVar, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.noise.fused import FusedTerms
from csgmcmc.samplers.base import CommonOptions, Group, States
from csgmcmc.samplers.fused import FusedSampler


class SGLD(FusedSampler):
    """theta <- theta - lr * grad + sqrt(2 * lr * T / N) * eps.

    Args:
        fused: draw the noise and update in one pass over the weights. It needs contiguous float32
            parameters, on a GPU with Triton or on the CPU with numba. By default it is used where
            it is faster: not for large updates without noise on the CPU.

    Other arguments: see `Sampler`.
    """

    exact_stationary_variance: ClassVar[bool] = True

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        fused: bool | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, lr, num_data=num_data, options={"fused": fused}, **common)

    def fused_terms(self, group: Group, states: States) -> FusedTerms:
        return FusedTerms(math.sqrt(langevin_variance(group)))

    def injected_variance(self, group: Group, param: Tensor) -> float:
        return langevin_variance(group)

    def update(self, group, params, gradients, noise, states) -> None:
        torch._foreach_add_(params, gradients, alpha=-group["lr"])
        if noise is not None:
            torch._foreach_add_(params, noise, alpha=math.sqrt(langevin_variance(group)))


def langevin_variance(group: Group) -> float:
    """Variance of the noise of one Langevin step, before any preconditioner."""
    return 2 * group["lr"] * group["temperature"] / group["num_data"]
