"""N compared with the data: the number of examples, and of the targets of each.

N * loss must equal the negative log-likelihood of all data. So N is the number of examples if the
loss is a mean over examples, of targets if it is also a mean over the labels, pixels or tokens of
each. For a squared error N is targets / (2 * noise variance), which may be any number.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils import _pytree as pytree

from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.loaders import Loss, batch_loss, is_pair, quietly, size_of
from csgmcmc.randomness import Generator, preserved_random_state
from csgmcmc.stacked import Stack

TARGET_NAMES = ("labels", "label", "targets", "target", "y")
"""Names of the targets in batches and examples that are dictionaries."""

ROUNDING = 1e-3  # of a loss, and of the sum of probabilities
IGNORED = -100  # the target that `cross_entropy` ignores by default
TOLERANCE = 1.5  # factor by which N may differ: other batches may ignore more or fewer targets


def default_num_data(loader: Any, generators: Sequence[Generator] = ()) -> int:
    """N of a loader whose examples have one target each; otherwise a `ValueError`.

    With several targets in an example, the loss may be a mean over these or not. `generators` are
    those that the data set draws from, as for augmentation; their states are preserved.
    """
    size, targets = size_of(loader), None
    with preserved_random_state(generators), suppress(LookupError, TypeError, NotImplementedError):
        targets = targets_of(loader.dataset[0])
    each = len(targets) if isinstance(targets, (list, tuple)) else 1
    each = math.prod(getattr(targets, "shape", (each,)))
    if each > 1:
        raise ValueError(
            f"num_data is not known: each of the {size} examples has {each} targets; give "
            f"num_data={size * each} if the loss is a mean over all targets, as that of "
            f"torch's functions is, or num_data={size} if it sums the targets of an example"
        )
    return size


class LossFacts(NamedTuple):
    """What can be seen of a loss from one batch."""

    terms: int | None = None  # how many targets of an example it is a mean over; 0: squared error
    is_sum: bool = False  # over the batch
    repeats_softmax: bool = False  # cross entropy of outputs that are probabilities


def warn_of_num_data(*args: Any, **options: Any) -> None:
    """Warn of what `wrong_num_data` finds."""
    if words := wrong_num_data(*args, **options):
        warn(words, SamplingWarning)


def wrong_num_data(
    sampler: Any, loader: Any, batch: Any, facts: LossFacts | None = None, processes: int = 1
) -> str:
    """What is wrong if the sampler's N is far from the number of examples or targets, or "".

    `batch` is the first of `loader`; `facts` are of the loss, if they are known; `processes` may
    each have data of their own. Where it is not known what the loss is a mean over, it may be of
    the inputs, as that of an autoencoder is: N may be up to the size of the largest tensor.
    """
    if facts is not None and facts.repeats_softmax:
        return "the model ends in a softmax, and the loss takes the softmax again: remove it"
    if facts is not None and facts.is_sum:
        return 'the loss is a sum over the batch, and must be its mean: give reduction="mean"'
    loader = getattr(loader, "loader", loader)  # of a `ResumableLoader`
    try:
        size = size_of(loader)
    except ValueError:  # not known
        return ""
    low, high, mean_over, data = 1.0, math.inf, None, f"{size} examples"
    targets = targets_of(batch)
    has_rows = isinstance(targets, Tensor) and targets.ndim > 0
    if has_rows and 0 < len(targets) <= (getattr(loader, "batch_size", None) or math.inf):
        each = targets[0].numel()
        data += " of one target each" if each == 1 else f" of {each} targets each"
        are_labels = not targets.is_floating_point() or ((targets == 0) | (targets == 1)).all()
        if facts is not None:
            mean_over = 1 if each == 1 and are_labels and is_pair(batch) else facts.terms
        if not are_labels and not mean_over:
            return ""  # a squared error
        counted = float((targets != IGNORED).float().mean())
        low, high = min(1.0, counted * each), _largest_row(batch)
        if mean_over:
            low = high = mean_over * (counted if mean_over == each else 1.0)
            data += f", and the loss is a mean over {mean_over} of them" if mean_over > 1 else ""
    given = [group["num_data"] for group in sampler.param_groups if "num_data" in group]
    wrong = [n for n in given if not low / TOLERANCE <= n / size <= high * TOLERANCE * processes]
    if not wrong:
        return ""
    right = size * (mean_over or 1)
    ratio = max(right / wrong[0], wrong[0] / right)
    heat = f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"
    heat += f" times too {'hot' if right > wrong[0] else 'cold'}"
    return (
        f"num_data={wrong[0]:g}, but the data set has {data}: N x loss must equal the negative "
        f"log-likelihood of all data, and with this N the posterior is {heat}; make the "
        f"sampler with num_data={right}"
    )


def loss_facts(loss: Loss, model: nn.Module, batch: Any) -> LossFacts:
    """Describe `loss` by its value if examples, or all targets of each, are given twice.

    A mean stays the same, and a sum is doubled. Batches are pairs, or dictionaries whose loss calls
    the model once. Evaluates the model once, without side effects.
    """
    targets, found, seen = targets_of(batch), LossFacts(), list[Any]()

    def spy(*inputs: Any, **options: Any) -> Any:
        seen.append(model(*inputs, **options))
        return seen[-1]

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        if is_pair(batch):
            return loss(outputs, targets)
        name = next(name for name in TARGET_NAMES if batch.get(name) is not None)
        return loss(lambda *_, **__: outputs, {**batch, name: targets})

    def near(one: Tensor, other: Tensor, tolerance: float = 0.1) -> bool:
        return bool(torch.isclose(one, other, rtol=tolerance))  # a shift by one leaves some out

    # A loss may do anything with its arguments, and need not accept other shapes.
    with suppress(Exception), preserved_random_state(), quietly(model):
        with suppress(Exception):
            batch_loss(loss, spy, batch)
        outputs = seen[0][0] if isinstance(model, Stack) else seen[0]  # of the first chain
        whole, is_elementwise = value(outputs, targets), outputs.shape == targets.shape
        is_sum = near(value(torch.cat([outputs] * 2), torch.cat([targets] * 2)), 2 * whole)
        found = LossFacts(is_sum=is_sum and len(targets) > 1)
        if is_elementwise:
            squared = mse_loss(outputs, targets)
            if near(whole, squared, ROUNDING) or near(whole, squared / 2, ROUNDING):
                return found._replace(terms=0)
        elif (outputs >= 0).all() and ((outputs.sum(1) - 1).abs() < ROUNDING).all():
            repeated = near(whole, cross_entropy(outputs, targets), ROUNDING)
            found = found._replace(repeats_softmax=repeated)
        if targets.ndim == 1:
            return found._replace(terms=1)
        # The dimension of the first labels, pixels or tokens: after the classes, or before them.
        classes_last = outputs.shape[:-1] == targets.shape
        for dim in (1,) if is_elementwise else (1, 2) if classes_last else (2,):
            with suppress(Exception):
                twice = value(torch.cat([outputs] * 2, dim), torch.cat([targets] * 2, 1))
                if near(twice, whole):
                    return found._replace(terms=targets[0].numel())
                if near(twice, 2 * whole):
                    return found._replace(terms=1)
    return found


def targets_of(found: Any) -> Any:
    """The targets of a batch or an example; None if they are not known."""
    if is_pair(found):
        return found[1]
    names = TARGET_NAMES if isinstance(found, Mapping) else ()
    return next((found[name] for name in names if found.get(name) is not None), None)


def _largest_row(batch: Any) -> float:
    """Elements that an example has in the largest tensor of a batch."""
    tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    return max(leaf[0].numel() for leaf in tensors if leaf.ndim and len(leaf))
