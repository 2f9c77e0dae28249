"""Priors other than weight decay, as gradients of the negative log density."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution

from csgmcmc.arguments import check_kind, shown

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
