r"""Preconditioned stochastic gradient Langevin dynamics, with RMSprop's diagonal preconditioner.

    V     <- alpha * V + (1 - alpha) * grad^2,    G = 1 / (eps + sqrt(V))
    theta <- theta - lr * G * grad + sqrt(2 * lr * T * G / N) * xi,    xi ~ N(0, I)

with grad the gradient of U / N (Li, Chen, Carlson and Carin, "Preconditioned Stochastic Gradient
Langevin Dynamics for Deep Neural Networks", AAAI 2016). At T = 0 this is RMSprop.

The exact drift has one more term, the divergence of G, which the authors leave out. Here it is 0:
unlike theirs, V changes only in steps at temperature 0, so that G is fixed while sampling.
"""

import math
from typing import Any

import torch

from csgmcmc.samplers import Sampler


class PSGLD(Sampler):
    """theta <- theta - lr * G * grad + sqrt(2 * lr * T * G / N) * xi, G = 1 / (eps + sqrt(V)).

    Begin at temperature 0: without a step there, G is 1 / eps.

    Args:
        lr: step size, as for `torch.optim.RMSprop`.
        alpha: memory of the squared gradient.
        eps: bound of the preconditioner, which is at most 1 / eps.

    Other arguments: see `Sampler`.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        num_data: float,
        alpha: float = 0.99,
        eps: float = 1e-5,
        **common: Any,
    ) -> None:
        options = {"alpha": alpha, "eps": eps}
        super().__init__(params, lr, num_data=num_data, options=options, **common)

    def update(self, group, params, gradients, noise, states) -> None:
        averages = states("square_average")
        if noise is None:
            torch._foreach_mul_(averages, group["alpha"])
            torch._foreach_addcmul_(averages, gradients, gradients, value=1 - group["alpha"])
        inverse = torch._foreach_sqrt(averages)
        torch._foreach_add_(inverse, group["eps"])
        torch._foreach_addcdiv_(params, gradients, inverse, value=-group["lr"])
        if noise is not None:
            torch._foreach_sqrt_(inverse)
            std = math.sqrt(2 * group["lr"] * group["temperature"] / group["num_data"])
            torch._foreach_addcdiv_(params, noise, inverse, value=std)
