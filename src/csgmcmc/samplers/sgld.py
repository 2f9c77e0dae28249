r"""Stochastic gradient Langevin dynamics.

    theta <- theta - lr * grad + sqrt(2 * lr * T / N) * eps,    eps ~ N(0, I)

with grad the gradient of U / N (Welling and Teh, "Bayesian Learning via Stochastic Gradient
Langevin Dynamics", ICML 2011). At T = 0 this is SGD.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.samplers.base import Group, Sampler
from csgmcmc.samplers.prior import Prior
from csgmcmc.shards import local_shard


class SGLD(Sampler):
    """theta <- theta - lr * grad + sqrt(2 * lr * T / N) * eps.

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        lr: step size, as for `torch.optim.SGD`: N times the step size of the literature.
        num_data: N, the size of the data set that the mean loss estimates; 1 for a plain density.
        temperature: T; 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        prior: any other prior: a `torch.distributions` object, or a function from a parameter to
            the gradient of -log prior.
        foreach: update all tensors of a group in one call; the result is the same bit for bit.
        seed: seed of the noise; by default a new one, which `sampler.noise.seed` tells.
        generator: draw the seed from this generator instead.
        chain_id: number of the chain; chains of one seed draw independent noise.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
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
            "temperature": temperature,
            "weight_decay": weight_decay,
            "prior": prior,
            "foreach": foreach,
        }
        super().__init__(params, options, seed=seed, generator=generator, chain_id=chain_id)

    def injected_variance(self, group: Group, param: Tensor) -> float:
        return 2 * group["lr"] * group["temperature"] / group["num_data"]

    @classmethod
    def reference(cls, params: ParamsT, **options: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=options["lr"], weight_decay=options["weight_decay"])

    @classmethod
    def stationary_variance(
        cls,
        curvature: float,
        *,
        lr: float,
        num_data: float,
        temperature: float = 1.0,
        gradient_variance: float = 0.0,
    ) -> float:
        """Exact variance of the discrete update, an AR(1) process, on a quadratic mean loss.

        `gradient_variance` is that of the noise in the minibatch gradient of the mean loss.
        """
        added = 2 * lr * temperature / num_data + lr**2 * gradient_variance
        kept = 1 - (1 - lr * curvature) ** 2
        return added / kept if kept > 0 else math.inf

    def _update(
        self,
        group: Group,
        params: list[Tensor],
        gradients: list[Tensor],
        noise: list[Tensor] | None,
        foreach: bool,
    ) -> None:
        noise_std = math.sqrt(self.injected_variance(group, params[0]))
        rule = sgld_foreach if foreach else sgld_plain
        rule(list(map(local_shard, params)), gradients, noise, lr=group["lr"], noise_std=noise_std)


def sgld_plain(
    params: list[Tensor],
    gradients: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    noise_std: float,
) -> None:
    for index, param in enumerate(params):
        param.add_(gradients[index], alpha=-lr)
        if noise is not None:
            param.add_(noise[index], alpha=noise_std)


def sgld_foreach(
    params: list[Tensor],
    gradients: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    noise_std: float,
) -> None:
    torch._foreach_add_(params, gradients, alpha=-lr)
    if noise is not None:
        torch._foreach_add_(params, noise, alpha=noise_std)
