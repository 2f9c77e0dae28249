r"""Preconditioned stochastic gradient Langevin dynamics, with RMSprop's diagonal preconditioner.

    V     <- alpha * V + (1 - alpha) * grad^2,    G = 1 / (eps + sqrt(V))
    theta <- theta - lr * G * grad + sqrt(2 * lr * T * G / N) * xi,    xi ~ N(0, I)

with grad the gradient of U / N (Li, Chen, Carlson and Carin, "Preconditioned Stochastic Gradient
Langevin Dynamics for Deep Neural Networks", AAAI 2016). At T = 0 this is RMSprop.

The exact drift has one more term, Gamma_i = T / N * sum_j dG_ij / dtheta_j. It is left out, as in
the paper's own experiments: it needs second derivatives. What that costs depends on how much G
follows theta. Where the chain moves slowly beside the memory of V, 1 / (1 - alpha) steps, and the
gradients are not dominated by minibatch noise, G shrinks away from the mode and the chain draws
from something too wide. `adapt="cold"` is the cure: G then changes only in steps at temperature 0
and stands still while sampling, so that Gamma is 0 and nothing is left out. With a `Cyclical`
schedule that means: learn G while exploring, use it while sampling.

V starts at 0, where G is up to 1 / eps: a chain that begins at T > 0 is first thrown far out. Begin
with steps at temperature 0, as every schedule with an exploration or a cold burn-in does.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_choice, check_number
from csgmcmc.samplers.base import Group, Sampler, zeros
from csgmcmc.samplers.prior import Prior
from csgmcmc.shards import local_shard


class PSGLD(Sampler):
    """theta <- theta - lr * G * grad + sqrt(2 * lr * T * G / N) * xi, G = 1 / (eps + sqrt(V)).

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        lr: step size, as for `torch.optim.RMSprop`.
        num_data: N, the size of the data set that the mean loss estimates; 1 for a plain density.
        alpha: memory of the squared gradient, at least 0 and below 1.
        eps: bound of the preconditioner, which is at most 1 / eps; above 0.
        adapt: `"always"`, as published, or `"cold"`: only in steps at temperature 0 (and in the
            first step of a parameter), so that nothing is left out of the drift.
        temperature: T; 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        prior: any other prior: a `torch.distributions` object, or a function from a parameter to
            the gradient of -log prior.
        foreach: update all tensors of a group in one call; the result is the same bit for bit.
        seed: seed of the noise; by default a new one, which `sampler.noise.seed` tells.
        generator: draw the seed from this generator instead.
        chain_id: number of the chain; chains of one seed draw independent noise.
    """

    law_tolerance = 0.2
    """Gamma is left out: measured on a Gaussian whose gradients the preconditioner averages."""

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
        foreach: bool | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
        chain_id: int = 0,
    ) -> None:
        options = {
            "lr": lr,
            "num_data": num_data,
            "alpha": alpha,
            "eps": eps,
            "adapt": adapt,
            "temperature": temperature,
            "weight_decay": weight_decay,
            "prior": prior,
            "foreach": foreach,
        }
        super().__init__(params, options, seed=seed, generator=generator, chain_id=chain_id)

    def _check_options(self, options: Group) -> None:
        super()._check_options(options)
        check_number("alpha", options["alpha"], at_least=0, below=1)
        check_number("eps", options["eps"], above=0)
        check_choice("adapt", options["adapt"], ("always", "cold"))

    def injected_variance(self, group: Group, param: Tensor) -> Tensor:
        return _plain_langevin_variance(group) * self.gradient_gain(group, param)

    def gradient_gain(self, group: Group, param: Tensor) -> Tensor:
        square_average = self.state[param].get("square_average", torch.zeros_like(param))
        return 1 / (square_average.sqrt() + group["eps"])

    @classmethod
    def reference(cls, params: ParamsT, **options: Any) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(
            params,
            lr=options["lr"],
            alpha=options["alpha"],
            eps=options["eps"],
            weight_decay=options["weight_decay"],
        )

    def _update(
        self,
        group: Group,
        params: list[Tensor],
        gradients: list[Tensor],
        noise: list[Tensor] | None,
        foreach: bool,
    ) -> None:
        frozen = noise is not None and group["adapt"] == "cold"
        if frozen:  # what was never seen before has to begin somewhere
            for param, gradient in zip(params, gradients, strict=True):
                if "square_average" not in self.state[param]:
                    (average,) = self._states([param], "square_average", zeros)
                    average.copy_(gradient.square().mul_(1 - group["alpha"]))
        rule = psgld_foreach if foreach else psgld_plain
        rule(
            list(map(local_shard, params)),
            gradients,
            self._states(params, "square_average", zeros),
            noise,
            lr=group["lr"],
            alpha=None if frozen else group["alpha"],
            eps=group["eps"],
            noise_std=math.sqrt(_plain_langevin_variance(group)),
        )


def _plain_langevin_variance(group: Group) -> float:
    """Variance of the noise before the preconditioner."""
    return 2 * group["lr"] * group["temperature"] / group["num_data"]


def psgld_plain(
    params: list[Tensor],
    gradients: list[Tensor],
    square_averages: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    alpha: float | None,
    eps: float,
    noise_std: float,
) -> None:
    for index, param in enumerate(params):
        gradient, square_average = gradients[index], square_averages[index]
        if alpha is not None:
            square_average.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        inverse = square_average.sqrt().add_(eps)
        param.addcdiv_(gradient, inverse, value=-lr)
        if noise is not None:
            param.addcdiv_(noise[index], inverse.sqrt_(), value=noise_std)


def psgld_foreach(
    params: list[Tensor],
    gradients: list[Tensor],
    square_averages: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    alpha: float | None,
    eps: float,
    noise_std: float,
) -> None:
    if alpha is not None:
        torch._foreach_mul_(square_averages, alpha)
        torch._foreach_addcmul_(square_averages, gradients, gradients, value=1 - alpha)
    inverse = torch._foreach_sqrt(square_averages)
    torch._foreach_add_(inverse, eps)
    torch._foreach_addcdiv_(params, gradients, inverse, value=-lr)
    if noise is not None:
        torch._foreach_sqrt_(inverse)
        torch._foreach_addcdiv_(params, noise, inverse, value=noise_std)
