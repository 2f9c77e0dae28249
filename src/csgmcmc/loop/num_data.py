"""N compared with the data: the number of examples, and of the targets of each.

N * loss must equal the negative log-likelihood of all data. So N is the number of examples if the
loss is a mean over examples, and the number of targets if it is also a mean over the labels, pixels
or tokens of an example. For a squared error N is targets / (2 * noise variance), which may be any
number.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils import _pytree as pytree

from csgmcmc.errors import SamplingWarning, warn
from csgmcmc.loaders import Loss, is_pair, quietly, size_of
from csgmcmc.randomness import Generator, preserved_random_state
from csgmcmc.stacked import Stack

TARGET_NAMES = ("labels", "label", "targets", "target", "y")
"""Names of the targets in batches and examples that are dictionaries."""

IGNORED = -100  # the target that `cross_entropy` ignores by default
TOLERANCE = 1.5  # factor by which N may differ: other batches may ignore more or fewer targets


def default_num_data(loader: Any, generators: Sequence[Generator] = ()) -> int:
    """N of a loader whose examples have one target each; otherwise a `ValueError`.

    With several targets in an example, the loss may be a mean over these or not. `generators` are
    those that the data set draws from, as for augmentation; their states are preserved.
    """
    size, targets = size_of(loader), None
    with preserved_random_state(generators), suppress(LookupError, TypeError, NotImplementedError):
        targets = _targets_of(loader.dataset[0])
    each = len(targets) if isinstance(targets, (list, tuple)) else 1
    each = math.prod(getattr(targets, "shape", (each,)))
    if each > 1:
        raise ValueError(
            f"num_data is not known: each of the {size} examples has {each} targets; give "
            f"num_data={size * each} if the loss is a mean over all targets, as that of "
            f"torch's functions is, or num_data={size} if it sums the targets of an example"
        )
    return size


def warn_of_num_data(
    sampler: torch.optim.Optimizer,
    loader: Any,
    batch: Any,
    *,
    terms: Callable[[], int | None] | None = None,
    processes: int = 1,
    remedy: str = "",
) -> None:
    """Warn if the sampler's N is far from the number of examples or targets.

    Where it is not known what the loss is a mean over, it may be of the inputs, as that of an
    autoencoder is: N may be up to the number of elements of the largest tensor.

    Args:
        sampler: of the run; an optimizer without `num_data` is ignored.
        loader: of the training data.
        batch: its first batch.
        terms: returns how many targets of an example the loss is a mean over; 0 for a squared
            error, None if that is not known. Called only where an example may have several.
        processes: how many processes may each have data of their own.
        remedy: how to silence the warning.
    """
    loader = getattr(loader, "loader", loader)  # of a `ResumableLoader`
    try:
        size = size_of(loader)
    except ValueError:  # not known
        return
    low, high, mean_over, data = 1.0, math.inf, None, f"{size} examples"
    targets = _targets_of(batch)
    has_rows = isinstance(targets, Tensor) and targets.ndim > 0
    if has_rows and 0 < len(targets) <= (getattr(loader, "batch_size", None) or math.inf):
        each = targets[0].numel()
        data += " of one target each" if each == 1 else f" of {each} targets each"
        are_labels = not targets.is_floating_point() or ((targets == 0) | (targets == 1)).all()
        if terms is not None:
            mean_over = 1 if each == 1 and are_labels else terms()
        if not are_labels and not mean_over:
            return  # a squared error
        counted = float((targets != IGNORED).float().mean())
        low, high = min(1.0, counted * each), _largest_row(batch)
        if mean_over:
            low = high = mean_over * (counted if mean_over == each else 1.0)
            data += f", and the loss is a mean over {mean_over} of them" if mean_over > 1 else ""
    given = [group["num_data"] for group in sampler.param_groups if "num_data" in group]
    wrong = [n for n in given if not low / TOLERANCE <= n / size <= high * TOLERANCE * processes]
    if wrong:
        right = size * (mean_over or 1)
        factor = right / wrong[0]
        words = f"{factor:.3g} times too hot" if factor > 1 else f"{1 / factor:.3g} times too cold"
        warn(
            f"num_data={wrong[0]:g}, but the data set has {data}: N x loss must equal the negative "
            f"log-likelihood of all data, and with this N the posterior is {words}; make the "
            f"sampler with num_data={right}{remedy}",
            SamplingWarning,
        )


def terms_in_mean(loss: Loss, model: nn.Module, batch: Any) -> int | None:
    """How many targets of each example `loss` is a mean over; None if that is not known.

    If all targets are given twice, a mean over them stays the same, and a sum is doubled. 0 for a
    squared error, or half of it. Evaluates the model once, without side effects.
    """
    targets = _targets_of(batch)
    # A loss may do anything with its arguments, and need not accept other shapes.
    with suppress(Exception), preserved_random_state(), quietly(model):
        outputs = model(batch[0])
        outputs = outputs[0] if isinstance(model, Stack) else outputs  # of the first chain
        whole, is_elementwise = loss(outputs, targets), outputs.shape == targets.shape
        if is_elementwise:
            squared = mse_loss(outputs, targets)
            if _close(whole, squared) or _close(whole, squared / 2):
                return 0
        if targets.ndim == 1:
            return 1
        dim = 1 if is_elementwise else 2  # after the classes
        twice = loss(torch.cat([outputs, outputs], dim), torch.cat([targets, targets], 1))
        if _close(twice, whole):
            return targets[0].numel()
        if _close(twice, 2 * whole):
            return 1
    return None


def _targets_of(found: Any) -> Any:
    """The targets of a batch or an example; None if they are not known."""
    if is_pair(found):
        return found[1]
    names = TARGET_NAMES if isinstance(found, Mapping) else ()
    return next((found[name] for name in names if found.get(name) is not None), None)


def _largest_row(batch: Any) -> float:
    """Elements that an example has in the largest tensor of a batch."""
    tensors = [leaf for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]
    return max(leaf[0].numel() for leaf in tensors if leaf.ndim and len(leaf))


def _close(one: Tensor, other: Tensor) -> bool:
    return bool(torch.isclose(one, other, rtol=1e-3))
