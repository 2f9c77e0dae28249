"""Priors other than weight decay, as gradients of the negative log density."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from csgmcmc.arguments import shown
from csgmcmc.shards import local_shard

Prior = Distribution | Callable[[Tensor], Tensor]
"""A `torch.distributions` object, or a function from a parameter to the gradient of -log prior."""


def prior_gradient(prior: Prior, param: Tensor) -> Tensor:
    """The gradient of -log prior at `param`."""
    with torch.enable_grad():  # the function may use autograd itself
        point = param.detach()
        if isinstance(prior, Distribution):
            point.requires_grad_()
            return torch.autograd.grad(-prior.log_prob(point).sum(), point)[0]
        gradient = prior(point)
    if not isinstance(gradient, Tensor) or gradient.shape != param.shape:
        raise ValueError(
            f"prior must return a gradient of shape {tuple(param.shape)}, that of the parameter, "
            f"got {shown(gradient)}"
        )
    return gradient.detach()


def gradients_with_prior(
    group: dict[str, Any], params: list[Tensor], values: list[Tensor]
) -> list[Tensor]:
    """Gradients of the loss, plus those of the prior over N if one is given."""
    gradients = []
    for param in params:
        gradient: Any = param.grad
        if gradient.layout != torch.strided:
            raise RuntimeError(
                f"the gradient of a parameter of shape {tuple(param.shape)} is sparse: samplers "
                "move every weight at every step and need dense gradients (sparse=False)"
            )
        gradients.append(local_shard(gradient))
    if group["prior"] is None:
        return gradients
    priors = [prior_gradient(group["prior"], value) for value in values]
    return list(torch._foreach_add(gradients, priors, alpha=1 / group["num_data"]))
