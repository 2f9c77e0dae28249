"""Whether N * loss is the negative log-likelihood of all data, measured after a run.

If the loss is right, its gradient on a batch, at the weights of a draw, is a multiple of the
gradient of the likelihood's NLL on the same batch. With c the factor of one batch,

    NLL of the batch = c * loss + constant,    N = sum of c over the batches of an epoch.

Gradients are compared, since a constant, such as the normalisation of a Gaussian, does not affect a
sampler.
"""

import copy
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.data import DistributedSampler

from csgmcmc.loaders import Loss, batch_loss, is_pair, size_of, to_device
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.passes import plain_split
from csgmcmc.randomness import Generator, generators_of, preserved_random_state

MAX_BATCHES = 32  # of the training data


class LikelihoodRatio(NamedTuple):
    """The loss compared with the likelihood."""

    cosine: float  # between the gradients of loss and NLL, mean over the batches
    num_data: float  # the N for which N * loss is the NLL of all data, up to a constant


def likelihood_ratio(
    posterior: Posterior, loss: Loss, data: Iterable[Any], generators: Iterable[Generator] = ()
) -> LikelihoodRatio | None:
    """Compare the loss with the NLL on batches of `data`; None if that cannot be done.

    The model is evaluated in eval mode with the weights of the last draw. It and all random states
    are left unchanged.
    """
    if isinstance(data, Iterator):  # it can be read only once, and other checks need it
        return None
    model = copy.deepcopy(posterior.model).eval().requires_grad_()
    posterior.draws[-1].load_into(model)
    params = [param for param in model.parameters() if param.is_floating_point()]
    ratios: list[tuple[float, float]] = []
    with preserved_random_state([*generators, *generators_of(data)]):
        batches = list(islice(iter(data), MAX_BATCHES + 1))
        for batch in batches[:MAX_BATCHES]:
            found = _compare(posterior, model, params, loss, to_device(batch, params[0].device))
            if found is None:
                return None
            ratios.append(found)
    per_epoch = _batches_per_epoch(data, len(ratios), whole=len(batches) <= MAX_BATCHES)
    if not ratios or per_epoch is None:
        return None
    factor, cosine = (sum(values) / len(ratios) for values in zip(*ratios, strict=True))
    return LikelihoodRatio(cosine, factor * per_epoch)


def _compare(
    posterior: Posterior, model: nn.Module, params: list[nn.Parameter], loss: Loss, batch: Any
) -> tuple[float, float] | None:
    """The factor from the loss to the NLL, and the cosine of their gradients, if it has targets."""
    inputs, targets = (plain_split if is_pair(batch) else posterior.split)(batch)
    if not isinstance(targets, Tensor):
        return None
    outputs = posterior.forward(model, inputs)
    outputs = pytree.tree_map_only(Tensor, lambda x: x.unsqueeze(0), outputs)
    nll = -posterior.likelihood.log_prob(outputs, targets).sum()
    ours, theirs = (_gradient(value, params) for value in (batch_loss(loss, model, batch), nll))
    norm, other = ours.norm(), theirs.norm()
    if not (norm > 0 and other > 0 and bool(torch.isfinite(norm + other))):
        return None
    product = float(ours @ theirs)
    return product / float(norm) ** 2, product / float(norm * other)


def _gradient(value: Tensor, params: list[nn.Parameter]) -> Tensor:
    gradients = torch.autograd.grad(value, params, materialize_grads=True)
    return torch.cat([gradient.double().flatten() for gradient in gradients])


def _batches_per_epoch(data: Any, read: int, *, whole: bool) -> float | None:
    """How many batches would hold all data; None if that is not known."""
    try:
        batches = float(read if whole else len(data))
    except TypeError:
        return None
    sampler, batch_size = getattr(data, "sampler", None), getattr(data, "batch_size", None)
    if sampler is None or not isinstance(batch_size, int):
        return batches
    try:
        size = size_of(data)
    except ValueError:  # an epoch is not all data
        return None
    if isinstance(sampler, DistributedSampler):
        return batches * size / len(sampler)
    if getattr(data, "drop_last", False):
        return size / batch_size
    return batches
