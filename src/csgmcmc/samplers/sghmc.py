r"""Stochastic gradient Hamiltonian Monte Carlo.

    v     <- momentum * v - lr * grad + sqrt(2 * (1 - momentum - gamma) * lr * T / N) * eps
    theta <- theta + v,    eps ~ N(0, I)

with grad the gradient of U / N, momentum = 1 - eta, and gamma the estimate of the minibatch noise
(Chen, Fox and Guestrin, "Stochastic Gradient Hamiltonian Monte Carlo", ICML 2014, in the form of
Zhang et al. 2020). At T = 0 this is SGD with momentum, at momentum 0 it is SGLD.

`noise_estimate` is gamma at the lr and temperature that the sampler is made with. Minibatches whose
mean gradients have variance V add lr^2 * V to the variance of v, so that the exact correction is
gamma = lr * N * V / (2 * T). A group keeps that V as `gradient_variance`, and each step leaves
lr^2 * V out of the noise, at whatever lr and temperature the schedule has come to. Where that is
more than all of the noise, none is injected, and the law is hotter than asked for. This is for
batches drawn independently: those of a shuffled epoch add less noise in the long run, so that the
correction takes out too much.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_number
from csgmcmc.samplers.base import Group, Sampler, zeros
from csgmcmc.samplers.prior import Prior
from csgmcmc.shards import local_shard


class SGHMC(Sampler):
    """v <- momentum * v - lr * grad + sqrt(2 * (1 - momentum - gamma) * lr * T / N) * eps.

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        lr: step size, as for `torch.optim.SGD`: N times the step size of the literature.
        num_data: N, the size of the data set that the mean loss estimates; 1 for a plain density.
        momentum: 1 - eta, at least 0 and below 1. The paper's eta = 0.9 is momentum 0.1.
        noise_estimate: gamma at the initial lr and temperature, at most 1 - momentum.
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
        momentum: float = 0.9,
        noise_estimate: float = 0.0,
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
            "momentum": momentum,
            "noise_estimate": noise_estimate,
            "temperature": temperature,
            "weight_decay": weight_decay,
            "prior": prior,
            "foreach": foreach,
        }
        super().__init__(params, options, seed=seed, generator=generator, chain_id=chain_id)

    def _check_options(self, options: Group) -> None:
        super()._check_options(options)
        momentum = check_number("momentum", options["momentum"], at_least=0, below=1)
        noise_estimate = check_number("noise_estimate", options["noise_estimate"], at_least=0)
        if momentum + noise_estimate > 1 + 1e-12:  # 0.9 + 0.1 may be a rounding above 1
            raise ValueError(
                f"noise_estimate must be at most 1 - momentum = {1 - momentum:g}, got "
                f"{noise_estimate!r}"
            )
        for option in ("lr", "temperature"):
            if noise_estimate > 0 and options[option] == 0:
                raise ValueError(
                    f"{option} must be above 0 for noise_estimate={noise_estimate!r} to mean "
                    f"anything, got {options[option]!r}"
                )

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        estimate, temperature = group["noise_estimate"], group["temperature"]
        variance = (
            2 * estimate * temperature / (group["lr"] * group["num_data"]) if estimate else 0.0
        )
        group.setdefault("gradient_variance", variance)

    def injected_variance(self, group: Group, param: Tensor) -> float:
        lr, friction = group["lr"], 1 - group["momentum"]
        wanted = 2 * friction * lr * group["temperature"] / group["num_data"]
        return max(wanted - lr**2 * group["gradient_variance"], 0.0)

    @classmethod
    def reference(cls, params: ParamsT, **options: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            params,
            lr=options["lr"],
            momentum=options["momentum"],
            weight_decay=options["weight_decay"],
        )

    @classmethod
    def stationary_variance(
        cls,
        curvature: float,
        *,
        lr: float,
        num_data: float,
        temperature: float = 1.0,
        momentum: float = 0.9,
        noise_estimate: float = 0.0,
        gradient_variance: float = 0.0,
    ) -> float:
        """Exact variance of the discrete update, an AR(2) process, on a quadratic mean loss.

        `gradient_variance` is that of the noise in the minibatch gradient of the mean loss.
        """
        injected = 2 * (1 - momentum - noise_estimate) * lr * temperature / num_data
        added = injected + lr**2 * gradient_variance
        pull = lr * curvature
        kept = (1 - momentum) * pull * (2 * (1 + momentum) - pull)
        return (1 + momentum) * added / kept if kept > 0 else math.inf

    def _update(
        self,
        group: Group,
        params: list[Tensor],
        gradients: list[Tensor],
        noise: list[Tensor] | None,
        foreach: bool,
    ) -> None:
        rule = sghmc_foreach if foreach else sghmc_plain
        rule(
            list(map(local_shard, params)),
            gradients,
            self._states(params, "velocity", zeros),
            noise,
            lr=group["lr"],
            momentum=group["momentum"],
            noise_std=math.sqrt(self.injected_variance(group, params[0])),
        )


def sghmc_plain(
    params: list[Tensor],
    gradients: list[Tensor],
    velocities: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    momentum: float,
    noise_std: float,
) -> None:
    for index, param in enumerate(params):
        velocity = velocities[index]
        velocity.mul_(momentum).add_(gradients[index], alpha=-lr)
        if noise is not None:
            velocity.add_(noise[index], alpha=noise_std)
        param.add_(velocity)


def sghmc_foreach(
    params: list[Tensor],
    gradients: list[Tensor],
    velocities: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    momentum: float,
    noise_std: float,
) -> None:
    torch._foreach_mul_(velocities, momentum)
    torch._foreach_add_(velocities, gradients, alpha=-lr)
    if noise is not None:
        torch._foreach_add_(velocities, noise, alpha=noise_std)
    torch._foreach_add_(params, velocities)
