r"""Stochastic gradient Nose-Hoover thermostat, with one thermostat for every weight.

    v     <- (1 - xi) * v - lr * grad + sqrt(2 * a * lr * T / N) * eps,    eps ~ N(0, I)
    theta <- theta + v
    xi    <- min(1, xi + coupling * (v^2 * (1 - xi / 2) * N / (lr * T) - 1))

with grad the gradient of U / N, a = 1 - momentum, and xi = a at the start (Ding et al., "Bayesian
Sampling Using Stochastic Gradient Thermostats", NeurIPS 2014; one thermostat a weight as in Gan et
al., "Scalable Deep Poisson Factor Analysis for Topic Modeling", ICML 2015). The friction xi finds
by itself what minibatch noise of unknown size asks for, which SGHMC has to be told. At T = 0 it is
SGD with momentum 1 - a: the thermostat stands still and has no say, since a friction that happened
to be below 0 when it froze would drive its weight away for as long as the cold lasts.

The factor 1 - xi / 2 is the discrete update's: with friction xi a step, v^2 averages
(lr * T / N) * 2 / (2 - xi) where theta has the right variance, and holding it to lr * T / N would
leave theta too cold. The bound xi <= 1 only matters when a chain comes hot out of an exploration.
In equilibrium the variance of xi is about `coupling`.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.arguments import check_number
from csgmcmc.samplers.base import Group, Sampler, zeros
from csgmcmc.samplers.prior import Prior
from csgmcmc.samplers.sghmc import sghmc_foreach, sghmc_plain
from csgmcmc.shards import local_shard


class SGNHT(Sampler):
    """v <- (1 - xi) * v - lr * grad + sqrt(2 * a * lr * T / N) * eps; the friction xi adapts.

    Args:
        params: parameters, or dictionaries of parameters and their own options.
        lr: step size, as for `torch.optim.SGD`: N times the step size of the literature.
        num_data: N, the size of the data set that the mean loss estimates; 1 for a plain density.
        momentum: 1 - a, at least 0 and below 1; 1 - a is also the momentum at the start.
        coupling: how fast the thermostat moves, at least 0; at 0 this is SGHMC.
        temperature: T; 1 samples the posterior, 0 optimises.
        weight_decay: Gaussian prior of precision N * weight_decay.
        prior: any other prior: a `torch.distributions` object, or a function from a parameter to
            the gradient of -log prior.
        foreach: update all tensors of a group in one call; the result is the same bit for bit.
        seed: seed of the noise; by default a new one, which `sampler.noise.seed` tells.
        generator: draw the seed from this generator instead.
        chain_id: number of the chain; chains of one seed draw independent noise.
    """

    thermostat = True

    law_tolerance = 0.03
    """The thermostat moves with the weights: right as lr goes to 0, close before."""

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        momentum: float = 0.9,
        coupling: float = 1e-3,
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
            "coupling": coupling,
            "temperature": temperature,
            "weight_decay": weight_decay,
            "prior": prior,
            "foreach": foreach,
        }
        super().__init__(params, options, seed=seed, generator=generator, chain_id=chain_id)

    def _check_options(self, options: Group) -> None:
        super()._check_options(options)
        check_number("momentum", options["momentum"], at_least=0, below=1)
        check_number("coupling", options["coupling"], at_least=0)

    def injected_variance(self, group: Group, param: Tensor) -> float:
        return 2 * (1 - group["momentum"]) * _kinetic_target(group)

    @classmethod
    def reference(cls, params: ParamsT, **options: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            params,
            lr=options["lr"],
            momentum=options["momentum"],
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
        velocities = self._states(params, "velocity", zeros)
        lr, momentum = group["lr"], group["momentum"]
        if noise is None or lr == 0:
            cold = sghmc_foreach if foreach else sghmc_plain
            values = list(map(local_shard, params))
            cold(values, gradients, velocities, None, lr=lr, momentum=momentum, noise_std=0.0)
            return
        rule = sgnht_foreach if foreach else sgnht_plain
        rule(
            list(map(local_shard, params)),
            gradients,
            velocities,
            self._states(params, "friction", lambda param: zeros(param).add_(1 - momentum)),
            noise,
            lr=lr,
            noise_std=math.sqrt(self.injected_variance(group, params[0])),
            kinetic_target=_kinetic_target(group),
            coupling=group["coupling"],
        )


def _kinetic_target(group: Group) -> float:
    """What the square of a velocity averages in continuous time."""
    return group["lr"] * group["temperature"] / group["num_data"]


def sgnht_plain(
    params: list[Tensor],
    gradients: list[Tensor],
    velocities: list[Tensor],
    frictions: list[Tensor],
    noise: list[Tensor],
    *,
    lr: float,
    noise_std: float,
    kinetic_target: float,
    coupling: float,
) -> None:
    for index, param in enumerate(params):
        velocity, friction = velocities[index], frictions[index]
        velocity.addcmul_(velocity, friction, value=-1).add_(gradients[index], alpha=-lr)
        velocity.add_(noise[index], alpha=noise_std)
        param.add_(velocity)
        kinetic = friction.mul(-0.5).add_(1).mul_(velocity).mul_(velocity)
        friction.add_(kinetic, alpha=coupling / kinetic_target).sub_(coupling)
        friction.clamp_(max=1)


def sgnht_foreach(
    params: list[Tensor],
    gradients: list[Tensor],
    velocities: list[Tensor],
    frictions: list[Tensor],
    noise: list[Tensor],
    *,
    lr: float,
    noise_std: float,
    kinetic_target: float,
    coupling: float,
) -> None:
    torch._foreach_addcmul_(velocities, velocities, frictions, value=-1)
    torch._foreach_add_(velocities, gradients, alpha=-lr)
    torch._foreach_add_(velocities, noise, alpha=noise_std)
    torch._foreach_add_(params, velocities)
    kinetic = torch._foreach_mul(frictions, -0.5)
    torch._foreach_add_(kinetic, 1)
    torch._foreach_mul_(kinetic, velocities)
    torch._foreach_mul_(kinetic, velocities)
    torch._foreach_add_(frictions, kinetic, alpha=coupling / kinetic_target)
    torch._foreach_sub_(frictions, coupling)
    torch._foreach_clamp_max_(frictions, 1)
