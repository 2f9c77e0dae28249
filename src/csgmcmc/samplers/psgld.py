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
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_choice, check_number
from csgmcmc.samplers.base import Group, Sampler, States
from csgmcmc.samplers.prior import Prior
from csgmcmc.samplers.sgld import langevin_variance


class PSGLD(Sampler):
    """theta <- theta - lr * G * grad + sqrt(2 * lr * T * G / N) * xi, G = 1 / (eps + sqrt(V)).

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        lr: step size, as for `torch.optim.RMSprop`.
        num_data: N, the size of the data set that the mean loss estimates; 1 for a plain density.
        alpha: memory of the squared gradient, at least 0 and below 1.
        eps: bound of the preconditioner, which is at most 1 / eps; above 0.
        adapt: `"always"`, as published, or `"cold"`: only in steps at temperature 0 and in the
            first step of a parameter, so that no term of the drift is missing.
        temperature: T; 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        prior: any other prior: a `torch.distributions` object, or a function from a parameter to
            the gradient of -log prior.
        seed: seed of the noise. By default a new one, available as `sampler.noise.seed`.
        chain_id: number of the chain; chains with the same seed draw independent noise.
    """

    preconditioned: ClassVar[bool] = True

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        alpha: float = 0.99,
        eps: float = 1e-5,
        adapt: Literal["always", "cold"] = "always",
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        prior: Prior | None = None,
        seed: int | None = None,
        chain_id: int = 0,
    ) -> None:
        super().__init__(
            params,
            lr,
            num_data=num_data,
            temperature=temperature,
            weight_decay=weight_decay,
            prior=prior,
            options={"alpha": alpha, "eps": eps, "adapt": adapt},
            seed=seed,
            chain_id=chain_id,
        )

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

    def update(
        self,
        group: Group,
        params: list[Tensor],
        gradients: list[Tensor],
        noise: list[Tensor] | None,
        states: States,
    ) -> None:
        frozen = noise is not None and group["adapt"] == "cold"
        # A frozen average still needs a first value.
        adapting = states.missing("square_average") if frozen else range(len(params))
        averages = states("square_average")
        if adapting:
            chosen = [averages[index] for index in adapting]
            adapt_averages(chosen, [gradients[i] for i in adapting], alpha=group["alpha"])
        lr, eps, noise_std = group["lr"], group["eps"], math.sqrt(langevin_variance(group))
        psgld(params, gradients, averages, noise, lr=lr, eps=eps, noise_std=noise_std)


def adapt_averages(square_averages: list[Tensor], gradients: list[Tensor], *, alpha: float) -> None:
    """Update V in place."""
    torch._foreach_mul_(square_averages, alpha)
    torch._foreach_addcmul_(square_averages, gradients, gradients, value=1 - alpha)


def psgld(
    params: list[Tensor],
    gradients: list[Tensor],
    square_averages: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    eps: float,
    noise_std: float,
) -> None:
    """Update theta in place."""
    inverse = torch._foreach_sqrt(square_averages)
    torch._foreach_add_(inverse, eps)
    torch._foreach_addcdiv_(params, gradients, inverse, value=-lr)
    if noise is not None:
        torch._foreach_sqrt_(inverse)
        torch._foreach_addcdiv_(params, noise, inverse, value=noise_std)
