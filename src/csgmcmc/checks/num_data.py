"""N compared with what can be counted: the examples of the data, and the targets of each.

N * loss must equal the negative log-likelihood of all data. So N is the number of examples if the
loss is a mean over examples, and the number of all targets if it is a mean over their labels,
pixels or tokens, too. There is no warning where N may be right: where targets are ignored, or where
the loss is a squared error, for which N = targets / (2 * variance of the noise).

The targets are the second of a pair, or what a dictionary has under one of `TARGET_NAMES`. Where
the loss cannot be asked over how many of them it is a mean, N may be anything from the number of
examples to that of all targets; or that of the elements of another tensor of the batch, such as the
pixels of an autoencoder.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils import _pytree as pytree
from torch.utils.data import DistributedSampler, SubsetRandomSampler

from csgmcmc.batches import Loss, is_pair, quietly
from csgmcmc.checks.run import level_of_caller
from csgmcmc.errors import SamplingWarning
from csgmcmc.loaders import size_of
from csgmcmc.randomness import Generator, preserved_random_state
from csgmcmc.stacked import Stack

IGNORED = -100  # the target that `cross_entropy` ignores by default
ROUNDING = 0.01  # relative difference of N that does not matter
FEWEST_TARGETS = 0.6  # share of the targets that may count, where some of them may be ignored
LONGER = 4  # how much longer the sequences of other batches may be than those of the first
CLOSE = 1e-3  # relative difference of equal losses

TARGET_NAMES = ("labels", "label", "targets", "target", "y")
"""What the targets are called in batches and examples that are dictionaries."""


class Examples(NamedTuple):
    """How many examples a loader goes through; `fewest` and `most` leave room for its sampler."""

    fewest: int
    size: int
    most: int


def examples_in(loader: Any) -> Examples | None:
    """The examples of a loader's data set, or of the subset that it samples; None if unknown."""
    try:
        size, sampler = len(loader.dataset), getattr(loader, "sampler", None)
        whole = sampler is None or isinstance(sampler, DistributedSampler)
        seen: int = size if whole else len(sampler)  # pyright: ignore[reportArgumentType]
    except (AttributeError, TypeError):
        return None
    if isinstance(sampler, SubsetRandomSampler):
        size = seen
    fewest = min(size, seen)
    if getattr(loader, "drop_last", False) and isinstance(loader.batch_size, int):
        fewest = min(fewest, len(loader) * loader.batch_size)
    return Examples(fewest, size, max(size, seen))


def default_num_data(loader: Any, generators: Sequence[Generator] = ()) -> int:
    """N of a loader whose examples have one target each; raises a `ValueError` if it is not known.

    With several targets in an example, the loss may be a mean over these or not. `generators` are
    those from which the data set may draw, as for augmentation: they stay where they are.
    """
    size = size_of(loader)
    unknown = (IndexError, KeyError, TypeError, NotImplementedError)
    with preserved_random_state(generators), suppress(*unknown):
        example = loader.dataset[0]
        each = _count(_named_targets(example))
        if each is None and isinstance(example, Mapping):
            raise ValueError(
                f"the examples are dictionaries of {', '.join(map(str, example))}, and which of "
                f"these are targets is not known: give num_data, which is {size} if each example "
                "has one target"
            )
        if each is not None and each > 1:
            raise ValueError(
                f"each of the {size} examples has {each} targets, so that N is not known: give "
                f"num_data={size * each} if the loss is a mean over all targets, as that of "
                f"torch's functions is, or num_data={size} if it sums the targets of an example"
            )
    return size


def targets_in(batch: Any) -> Tensor | None:
    """The targets of a batch, if they are a tensor with a row for each example."""
    targets = _named_targets(batch)
    return targets if isinstance(targets, Tensor) and targets.ndim and len(targets) else None


def _named_targets(found: Any) -> Any:
    """The targets of a batch or an example; None if they are not known."""
    if is_pair(found):
        return found[1]
    names = TARGET_NAMES if isinstance(found, Mapping) else ()
    return next((found[name] for name in names if found.get(name) is not None), None)


def _count(targets: Any) -> int | None:
    """How many targets an example has; None if these are no array, list or single value."""
    if isinstance(targets, (Tensor, np.ndarray)):
        return math.prod(targets.shape)
    if isinstance(targets, (list, tuple)):
        with suppress(ValueError):  # lists of different lengths
            return np.size(targets)
    return 1 if isinstance(targets, (int, float, str, np.generic)) else None


def warn_of_num_data(
    sampler: torch.optim.Optimizer,
    loader: Any,
    batch: Any,
    *,
    terms: Callable[[], int | None] | None = None,
    processes: int = 1,
    remedy: str = "",
) -> None:
    """Warn if the sampler's N cannot be right for the data, judged by their first batch.

    Args:
        sampler: of the run; an optimizer without `num_data` is left alone.
        loader: of the training data.
        batch: its first batch.
        terms: finds over how many targets of an example the loss is a mean; None if not known. It
            is called where an example has several, or N is wrong. Without it, the loss may be of
            something else than these targets.
        processes: how many processes may each have data of their own.
        remedy: how to silence the warning.
    """
    loader = getattr(loader, "loader", loader)  # of a `ResumableLoader`
    examples, targets = examples_in(loader), targets_in(batch)
    given = [group["num_data"] for group in sampler.param_groups if "num_data" in group]
    if examples is None or not given:
        return
    ask = cache(terms or (lambda: None))
    each = None if targets is None else _targets_of_each(targets, loader, batch)
    known = None
    if terms is not None and each is not None:
        known = (ask() or None) if each > 1 else each
    low, high = _bounds(examples, targets, known, each)
    if targets is None:
        high = _most_of_tokens(examples, batch)
    wrong = [
        n
        for n in given
        if not low * (1 - ROUNDING) <= n <= high * processes * (1 + ROUNDING)
        and not (known is None and n > high and _is_of_another_tensor(n, examples, batch))
    ]
    # Any N can be right for a squared error: it depends on the variance of the noise.
    if not wrong or (targets is not None and _are_numbers(targets) and not ask()):
        return
    if terms is None and wrong[0] > high:
        remedy = f"{remedy}; unless the loss is of something else than these targets"
    warnings.warn(
        f"{_describe(wrong[0], examples.size, each, known)}{remedy}",
        SamplingWarning,
        stacklevel=level_of_caller(),
    )


def _targets_of_each(targets: Tensor, loader: Any, batch: Any) -> int | None:
    """How many targets each example has; None if those of one may follow each other."""
    batch_size = getattr(loader, "batch_size", None)
    if isinstance(batch_size, int):
        flat = len(targets) > batch_size
    else:  # of a dictionary all tensors have a row for each example
        flat = is_pair(batch) or any(len(targets) != len(one) for one in _tensors_in(batch))
    return None if flat else targets[0].numel()


def _tensors_in(batch: Any) -> list[Tensor]:
    """The tensors of a batch that have rows."""
    return [one for one in pytree.tree_leaves(batch) if isinstance(one, Tensor) and one.ndim]


def _is_of_another_tensor(num_data: float, examples: Examples, batch: Any) -> bool:
    """Whether N is the number of elements of a tensor of the batch, of which some may be padding.

    That is right for a loss of the inputs, such as an autoencoder's.
    """
    sizes = [examples.most * one[0].numel() for one in _tensors_in(batch) if len(one)]
    return any(FEWEST_TARGETS * size <= num_data <= size * (1 + ROUNDING) for size in sizes)


def _most_of_tokens(examples: Examples, batch: Any) -> float:
    """The greatest N of a batch whose targets are not known: infinite unless it is of tokens."""
    tensors = _tensors_in(batch)
    if not tensors or any(one.is_floating_point() or not len(one) for one in tensors):
        return math.inf  # of numbers there may be a squared error
    return float(examples.most * LONGER * max(one[0].numel() for one in tensors))


def _bounds(
    examples: Examples, targets: Tensor | None, terms: int | None, each: int | None
) -> tuple[float, float]:
    """The least and the greatest N that may be right."""
    low, high = float(examples.fewest), math.inf
    if terms is not None:
        high = examples.most * terms
        low = low if terms == 1 else FEWEST_TARGETS * examples.fewest * terms
    elif targets is not None and each is not None:
        is_sequence = each > 1 and not targets.is_floating_point()
        high = examples.most * each * (LONGER if is_sequence else 1)
    if targets is not None and bool((ignored := targets == IGNORED).any()):
        several = int((~ignored).sum()) >= len(targets)
        low = float(examples.fewest) if several else 0.0
    return low, high


def _describe(num_data: float, examples: int, each: int | None, terms: int | None) -> str:
    """What is wrong with N, and the right one, as far as it is known."""
    right = examples * (terms or 1)
    most = right if terms is not None or each is None else examples * each
    data = f"the data set has {examples} examples"
    if terms is not None and terms > 1:
        data += f", and the loss is a mean over the {terms} targets of each, too"
    elif each == 1:
        data += " of one target each"
    elif each is not None and num_data > most:
        data += f" of {each} targets each"
    is_hot = num_data < right
    factor = right / num_data if is_hot else num_data / most
    more = ", times the targets of an example if the loss is a mean over these, too"
    return (
        f"num_data={num_data:g}, but {data}: N x loss must equal the negative log-likelihood of "
        f"all data, and with this N the posterior is {factor:.3g} times too "
        f"{'hot' if is_hot else 'cold'}; make the sampler with "
        f"num_data={right}{more if terms is None and each != 1 else ''}"
    )


def terms_in_mean(loss: Loss, model: nn.Module, batch: Any) -> int | None:
    """How many targets of each example `loss` is a mean over, or None if that is not known.

    A mean over targets is the mean of its parts, if the targets are split; a sum is their sum. 0
    for a plain squared error, or half of it. Evaluates the model once, without side effects.
    """
    targets = targets_in(batch)
    if targets is None or not is_pair(batch):
        return None
    # A loss may do anything with its arguments, and need not take a part of them.
    with suppress(Exception), preserved_random_state(), quietly(model):
        outputs = model(batch[0])
        outputs = outputs[0] if isinstance(model, Stack) else outputs  # of the first chain
        if outputs.shape == targets.shape:
            factor = loss(outputs, targets) / mse_loss(outputs, targets)
            if any(_close(factor, factor.new_tensor(plain)) for plain in (0.5, 1.0)):
                return 0
        return _split(loss, outputs, targets)
    return None


def _split(loss: Loss, outputs: Tensor, targets: Tensor) -> int | None:
    """Compare the loss with those of parts of the targets, along each of their dimensions."""
    first = 1 if outputs.shape == targets.shape else 2  # after the classes
    if outputs.shape[first:] != targets.shape[1:]:
        return None
    whole, terms = loss(outputs, targets), 1
    for dim in range(1, targets.ndim):
        size = targets.shape[dim]
        if size == 1:
            continue
        sizes = [1, size - 1]
        parts = zip(outputs.split(sizes, dim - 1 + first), targets.split(sizes, dim), strict=True)
        one, rest = (loss(*part) for part in parts)
        is_mean = _close(whole, (one + (size - 1) * rest) / size)
        if is_mean == _close(whole, one + rest):
            return None
        terms *= size if is_mean else 1
    return terms


def _close(one: Tensor, other: Tensor) -> bool:
    return bool(torch.isclose(one, other, rtol=CLOSE))


def _are_numbers(targets: Tensor) -> bool:
    """Whether targets are those of regression, and not classes or labels of 0 and 1."""
    return targets.is_floating_point() and not bool(((targets == 0) | (targets == 1)).all())
