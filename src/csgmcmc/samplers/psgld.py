r"""Preconditioned stochastic gradient Langevin dynamics, with RMSprop's diagonal preconditioner.

    V     <- alpha * V + (1 - alpha) * grad^2,    G = 1 / (eps + sqrt(V))
    theta <- theta - lr * G * grad + sqrt(2 * lr * T * G / N) * xi,    xi ~ N(0, I)

with grad the gradient of U / N (Li, Chen, Carlson and Carin, "Preconditioned Stochastic Gradient
Langevin Dynamics for Deep Neural Networks", AAAI 2016). At T = 0 this is RMSprop.

The exact drift has one more term, Gamma_i = T / N * sum_j dG_ij / dtheta_j. It is left out, as in
the paper's own experiments, because it needs second derivatives. The error depends on how much G
follows theta. Where the chain moves slowly compared with the memory of V, 1 / (1 - alpha) steps,
and minibatch noise does not dominate the gradients, G shrinks away from the mode and the stationary
distribution is too wide. `adapt="cold"` avoids this: G then changes only in steps at temperature 0
and is fixed while sampling, so that Gamma is 0. With a `Cyclical` schedule, G is learned while
exploring and used while sampling.

V starts at 0, where G is up to 1 / eps, so a chain that starts at T > 0 is first thrown far out.
Start with steps at temperature 0, as every schedule with a cold exploration or burn-in does.
"""

import math
from typing import Literal, Unpack

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_choice, check_number
from csgmcmc.samplers.base import CommonOptions, Group, Sampler
from csgmcmc.samplers.sgld import langevin_variance


class PSGLD(Sampler):
    """theta <- theta - lr * G * grad + sqrt(2 * lr * T * G / N) * xi, G = 1 / (eps + sqrt(V)).

    Args:
        lr: step size, as for `torch.optim.RMSprop`.
        alpha: memory of the squared gradient, at least 0 and below 1.
        eps: bound of the preconditioner, which is at most 1 / eps; above 0.
        adapt: `"always"`, as published, or `"cold"`: only in steps at temperature 0 and in the
            first step of a parameter, so that no term of the drift is missing.

    Other arguments: see `Sampler`.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        alpha: float = 0.99,
        eps: float = 1e-5,
        adapt: Literal["always", "cold"] = "always",
        **common: Unpack[CommonOptions],
    ) -> None:
        options = {"alpha": alpha, "eps": eps, "adapt": adapt}
        super().__init__(params, lr, num_data=num_data, options=options, **common)

    def check_options(self, options: Group) -> None:
        super().check_options(options)
        check_number("alpha", options["alpha"], at_least=0, below=1)
        check_number("eps", options["eps"], above=0)
        check_choice("adapt", options["adapt"], ("always", "cold"))

    def injected_variance(self, group: Group, param: Tensor) -> Tensor:
        return langevin_variance(group) * self.gradient_gain(group, param)

    def gradient_gain(self, group: Group, param: Tensor) -> Tensor:
        square_average = self.state[param].get("square_average", torch.zeros_like(param))
        return 1 / (square_average.sqrt() + group["eps"])

    def update(self, group, params, gradients, noise, states) -> None:
        frozen = noise is not None and group["adapt"] == "cold"
        # A frozen average still needs a first value.
        adapting = states.missing("square_average") if frozen else range(len(params))
        averages = states("square_average")
        if adapting:
            chosen, own = [averages[i] for i in adapting], [gradients[i] for i in adapting]
            torch._foreach_mul_(chosen, group["alpha"])
            torch._foreach_addcmul_(chosen, own, own, value=1 - group["alpha"])
        inverse = torch._foreach_sqrt(averages)
        torch._foreach_add_(inverse, group["eps"])
        torch._foreach_addcdiv_(params, gradients, inverse, value=-group["lr"])
        if noise is not None:
            torch._foreach_sqrt_(inverse)
            std = math.sqrt(langevin_variance(group))
            torch._foreach_addcdiv_(params, noise, inverse, value=std)
