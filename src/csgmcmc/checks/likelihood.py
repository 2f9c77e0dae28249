"""Whether N * loss is the negative log-likelihood of all data, measured after a run.

The gradients of the loss and of the likelihood's NLL on the same batch, at the weights of a draw,
are multiples of each other if the loss is right. With c the factor of one batch,

    NLL of the batch = c * loss + constant,    N = sum of c over the batches of an epoch.

Gradients, since a constant, such as the normalisation of a Gaussian, does not matter to a sampler.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from csgmcmc.batches import Loss, batch_loss
from csgmcmc.draws import Draw
from csgmcmc.loaders import size_of, to_device
from csgmcmc.randomness import Generator, generators_of, preserved_random_state

Nll = Callable[[nn.Module, Any], Tensor | None]
"""The sum of the likelihood's NLL over a batch, under a model; None for a batch without targets."""

MOST_BATCHES = 32  # of the training data
SAME_DIRECTION = 0.999  # cosine of gradients above which the loss is a multiple of the NLL
TOLERANCE = 0.1  # relative error of N that is not reported


class LikelihoodRatio(NamedTuple):
    """What the gradients say.

    Attributes:
        cosine: of the gradients of the loss and of the NLL, in the mean over the batches.
        num_data: the N for which N * loss is the NLL of all data, up to a constant.
    """

    cosine: float
    num_data: float


def likelihood_ratio(
    model: nn.Module,
    draw: Draw,
    loss: Loss,
    nll: Nll,
    data: Iterable[Any],
    *,
    generators: Iterable[Generator] = (),
) -> LikelihoodRatio | None:
    """Compare the loss with the NLL on batches of `data`; None if that cannot be done.

    The model is evaluated in eval mode with the weights of `draw`. It and all random states are
    left unchanged.
    """
    if isinstance(data, Iterator):  # it can be read only once, and other checks need it
        return None
    model = copy.deepcopy(model).eval().requires_grad_()
    draw.load_into(model)
    params = [param for param in model.parameters() if param.is_floating_point()]
    factors: list[float] = []
    cosines: list[float] = []
    with preserved_random_state([*generators, *generators_of(data)]):
        batches = list(islice(iter(data), MOST_BATCHES + 1))
        for batch in batches[:MOST_BATCHES]:
            found = _compare(model, params, loss, nll, to_device(batch, params[0].device))
            if found is None:
                return None
            factors.append(found[0])
            cosines.append(found[1])
    if not factors:
        return None
    per_epoch = _batches_per_epoch(data, len(factors), whole=len(batches) <= MOST_BATCHES)
    if per_epoch is None:
        return None
    mean = sum(factors) / len(factors)
    return LikelihoodRatio(sum(cosines) / len(cosines), mean * per_epoch)


def _compare(
    model: nn.Module, params: list[nn.Parameter], loss: Loss, nll: Nll, batch: Any
) -> tuple[float, float] | None:
    """The factor from the loss to the NLL, and the cosine of their gradients."""
    total = nll(model, batch)
    if total is None:
        return None
    ours, theirs = (_gradient(value, params) for value in (batch_loss(loss, model, batch), total))
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
