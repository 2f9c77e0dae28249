"""Priors other than weight decay, as gradients of the negative log density."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from csgmcmc.arguments import check_kind, shown
from csgmcmc.shards import local_shard

Prior = Distribution | Callable[[Tensor], Tensor]
"""A `torch.distributions` object, or a function from a parameter to the gradient of -log prior."""


def check_prior(prior: object) -> None:
    """Raise a `ValueError` unless `prior` is None, a distribution or a function."""
    if prior is not None and not isinstance(prior, Distribution) and not callable(prior):
        raise ValueError(
            "prior must be None, a torch.distributions object, or a function from a parameter to "
            f"the gradient of its negative log prior, got {shown(prior)}"
        )


def prior_gradient(prior: Prior, param: Tensor) -> Tensor:
    """The gradient of -log prior at `param`."""
    with torch.enable_grad():  # the function may use autograd itself
        if isinstance(prior, Distribution):
            point = param.detach().requires_grad_()
            return torch.autograd.grad(-prior.log_prob(point).sum(), point)[0]
        gradient = check_kind("what prior returns", prior(param.detach()), Tensor, "a tensor")
        gradient = gradient.detach()
    if gradient.shape != param.shape:
        raise ValueError(
            f"prior returned a gradient of shape {tuple(gradient.shape)} for a parameter of "
            f"shape {tuple(param.shape)}"
        )
    return gradient


def gradients_with_prior(
    group: dict[str, Any], params: list[Tensor], values: list[Tensor]
) -> list[Tensor]:
    """Gradients of the loss, and of the prior over N where one is given."""
    gradients = []
    for param, value in zip(params, values, strict=True):
        gradient: Any = param.grad
        if gradient.layout != torch.strided:
            raise RuntimeError(
                f"the gradient of a parameter of shape {tuple(param.shape)} is sparse: samplers "
                "move every weight at every step and need dense gradients (sparse=False)"
            )
        gradients.append(local_shard(gradient))
        if gradients[-1].shape != value.shape:
            raise RuntimeError(
                f"a parameter of shape {tuple(value.shape)} has a gradient of shape "
                f"{tuple(gradients[-1].shape)}"
            )
    if group["prior"] is None:
        return gradients
    priors = [prior_gradient(group["prior"], value) for value in values]
    return list(torch._foreach_add(gradients, priors, alpha=1 / group["num_data"]))
