r"""Stochastic gradient Langevin dynamics.

    theta <- theta - lr * grad + sqrt(2 * lr * T / N) * eps,    eps ~ N(0, I)

with grad the gradient of U / N (Welling and Teh, "Bayesian Learning via Stochastic Gradient
Langevin Dynamics", ICML 2011). At T = 0 this is SGD.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from csgmcmc.samplers.base import Group, Sampler, States
from csgmcmc.samplers.fused import FusedTerms
from csgmcmc.samplers.inputs import checked_formula
from csgmcmc.samplers.prior import Prior


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
        fused: draw the noise and update in one pass over the weights. None chooses it where it
            serves: contiguous float32 parameters on the CPU, with noise or small.
        seed: seed of the noise. By default a new one, available as `sampler.noise.seed`.
        chain_id: number of the chain; chains with the same seed draw independent noise.
    """

    exact_stationary_variance: ClassVar[bool] = True

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        num_data: float,
        temperature: float = 1.0,
        weight_decay: float = 0.0,
        prior: Prior | None = None,
        fused: bool | None = None,
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
            options={"fused": fused},
            seed=seed,
            chain_id=chain_id,
        )

    def fused_terms(self, group: Group, states: States) -> FusedTerms:
        return FusedTerms(noise_std=math.sqrt(langevin_variance(group)))

    def injected_variance(self, group: Group, param: Tensor) -> float:
        return langevin_variance(group)

    @classmethod
    def stationary_variance(
        cls,
        curvature: float,
        *,
        lr: float,
        num_data: float,
        temperature: float = 1.0,
        minibatch_variance: float = 0.0,
    ) -> float:
        """Exact variance of the discrete update, an AR(1) process, on a quadratic mean loss.

        `minibatch_variance` is the variance of the noise in the minibatch gradients of the mean
        loss.
        """
        curvature, lr, num_data, temperature, minibatch_variance = checked_formula(
            curvature=curvature,
            lr=lr,
            num_data=num_data,
            temperature=temperature,
            minibatch_variance=minibatch_variance,
        )
        added = 2 * lr * temperature / num_data + lr**2 * minibatch_variance
        pull = lr * curvature
        kept = pull * (2 - pull)  # 1 - (1 - pull)**2, which would lose the digits of a small pull
        return added / kept if kept > 0 else math.inf

    def update(
        self,
        group: Group,
        params: list[Tensor],
        gradients: list[Tensor],
        noise: list[Tensor] | None,
        states: States,
    ) -> None:
        noise_std = math.sqrt(langevin_variance(group))
        sgld(params, gradients, noise, lr=group["lr"], noise_std=noise_std)


def langevin_variance(group: Group) -> float:
    """Variance of the noise of one Langevin step, before any preconditioner."""
    return 2 * group["lr"] * group["temperature"] / group["num_data"]


def sgld(
    params: list[Tensor],
    gradients: list[Tensor],
    noise: list[Tensor] | None,
    *,
    lr: float,
    noise_std: float,
) -> None:
    """The update above, in place."""
    torch._foreach_add_(params, gradients, alpha=-lr)
    if noise is not None:
        torch._foreach_add_(params, noise, alpha=noise_std)
