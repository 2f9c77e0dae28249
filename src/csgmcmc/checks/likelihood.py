"""Whether N * loss is the negative log-likelihood of all data, measured after a run.

If the loss is right, its gradient on a batch, at the weights of a draw, is a multiple of the
gradient of the likelihood's NLL on the same batch. With c the factor of one batch,

    NLL of the batch = c * loss + constant,    N = sum of c over all data.

Gradients are compared, since a constant, such as the normalisation of a Gaussian, does not affect a
sampler.
"""

import copy
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from csgmcmc.loaders import Loss, batch_loss, is_pair, size_of, to_device
from csgmcmc.posterior import Posterior
from csgmcmc.posterior.passes import plain_split
from csgmcmc.randomness import Generator, generators_of, preserved_random_state

MAX_BATCHES = 32  # of the training data
MAX_OFF_SUM = 0.01  # relative difference between a sum over a batch and its NLL


class LikelihoodRatio(NamedTuple):
    """The loss compared with the likelihood."""

    cosine: float  # between the gradients of loss and NLL, mean over the batches
    num_data: float  # the N for which N * loss is the NLL of all data, up to a constant
    nll: float  # of the batches under the last draw, per target
    is_sum: bool  # whether the loss is the NLL of a whole batch, not its mean
    has_penalty: bool  # whether the loss depends on weights besides the outputs of the model


def likelihood_ratio(
    posterior: Posterior,
    loss: Loss,
    data: Iterable[Any],
    generators: Iterable[Generator] = (),
    trained: Sequence[Tensor] = (),
) -> LikelihoodRatio | None:
    """Compare the loss with the NLL on batches of `data`; None if that cannot be done.

    The model is evaluated in eval mode with the weights of the last draw. It and all random states
    are left unchanged. `trained` are the parameters of the run, on which the loss of a copy of the
    model depends only if it uses them itself.
    """
    model = copy.deepcopy(posterior.model).eval().requires_grad_()
    posterior.draws[-1].load_into(model)
    params = [param for param in model.parameters() if param.is_floating_point()]
    ratios: list[tuple[float, float, int, float, int]] = []
    has_penalty = False
    with preserved_random_state([*generators, *generators_of(data)]):
        for each in islice(data, MAX_BATCHES):
            batch = to_device(each, params[0].device)
            if trained and not ratios:
                value = batch_loss(loss, model, batch)
                own = torch.autograd.grad(value, trained, allow_unused=True)
                has_penalty = any(gradient is not None for gradient in own)
            found = _compare(posterior, model, params, loss, batch)
            if found is None:
                return None
            ratios.append(found)
    if not ratios:
        return None
    factors, cosines, examples, nll, targets = (sum(values) for values in zip(*ratios, strict=True))
    is_sum = examples > len(ratios) and all(abs(each[0] - 1) < MAX_OFF_SUM for each in ratios)
    try:
        share = len(ratios) / len(data)  # pyright: ignore[reportArgumentType]
        if isinstance(getattr(data, "batch_size", None), int):
            share = examples / size_of(data)
    except (TypeError, ValueError):  # the size of the data is not known
        return None
    cosine, nll = cosines / len(ratios), nll / max(targets, 1)
    return LikelihoodRatio(cosine, factors / share, nll, is_sum, has_penalty)


def _compare(
    posterior: Posterior, model: nn.Module, params: list[nn.Parameter], loss: Loss, batch: Any
) -> tuple[float, float, int, float, int] | None:
    """Factor from the loss to the NLL, cosine of their gradients, examples, NLL, and targets.

    None if the batch has no targets, or a gradient is 0.
    """
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
    found = product / float(norm) ** 2, product / float(norm * other)
    return *found, len(targets), nll.item(), targets.numel()


def _gradient(value: Tensor, params: list[nn.Parameter]) -> Tensor:
    gradients = torch.autograd.grad(value, params, materialize_grads=True)
    return torch.cat([gradient.double().flatten() for gradient in gradients])
