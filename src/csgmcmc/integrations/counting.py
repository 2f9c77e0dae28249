"""Counts N where a data point is not an example: the number of targets in the mean loss."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from csgmcmc.batches import quietly


def num_targets(
    data: Iterable[Any],
    model: nn.Module | None = None,
    *,
    causal: bool | None = None,
    ignore_index: int = -100,
) -> int:
    """N of a data set with `labels`: the number of targets in the mean loss over the data set.

    These are tokens for language models, and sequences for sequence classifiers. Masked tokens do
    not count, nor does the first token of each sequence if the loss shifts labels.

    Args:
        data: a loader of batches, or a data set of examples, which are dictionaries with `labels`.
            If a collator makes the labels, give a loader with that collator. All of it is read.
        model: evaluated on one example to find out whether its loss shifts labels, if there is one
            label per token and `causal` is not given.
        causal: whether the loss shifts labels: each token is predicted from those before it, and
            the first of a sequence is not predicted.
        ignore_index: label of masked targets.
    """
    return count_targets(data, model, causal, ignore_index)[0]


def count_targets(
    data: Iterable[Any], model: nn.Module | None, causal: bool | None, ignore_index: float
) -> tuple[int, bool]:
    """As `num_targets`, and whether the loss shifts labels."""
    total = 0
    examples = gives_examples(data)
    for batch in each_of(data):
        labels, shifted = labels_of(batch)
        # One label for each token: in a batch a second dimension, in an example the first one.
        by_token = labels.ndim >= (1 if examples else 2) and not labels.is_floating_point()
        if causal and not by_token:
            raise ValueError(
                f"causal=True needs a label for each token, got labels of shape "
                f"{tuple(labels.shape)}"
            )
        if by_token and causal is None and not shifted:
            causal = _shifts_labels(model, batch, examples, ignore_index)
        if causal and not shifted:
            labels = labels[..., 1:]
        total += int((labels != ignore_index).sum())
    if not total:
        raise ValueError(
            f"data has no target: all labels are ignore_index={ignore_index}, or it is empty"
        )
    return total, bool(causal)


def check_not_sequences(labels: Any, num_data: float | None, examples: int | None) -> None:
    """Raise a `ValueError` if N is the number of sequences, but there are labels for each token."""
    if num_data is None or num_data != examples or not isinstance(labels, Tensor):
        return
    by_token = labels.ndim > 1 and not labels.is_floating_point()
    if by_token and int((labels[:, 1:] != -100).sum()) > len(labels):
        raise ValueError(
            f"num_data={num_data} is the number of sequences, but the loss is a mean over tokens: "
            "make the sampler with num_data=num_targets(data, model)"
        )


def gives_examples(data: Any) -> bool:
    """Whether `data` is a data set, and not a loader of batches."""
    return hasattr(data, "__getitem__") or isinstance(data, IterableDataset)


def each_of(data: Any) -> Iterator[Any]:
    """The examples of a data set, or the batches of a loader."""
    if hasattr(data, "__getitem__") and not isinstance(data, IterableDataset):
        return (data[index] for index in range(len(data)))  # iterating some data sets never ends
    return iter(data)


def labels_of(batch: Any) -> tuple[Tensor, bool]:
    """The labels of a batch or example, and whether they are shifted already."""
    if not isinstance(batch, Mapping):
        raise ValueError(
            f"data must give dictionaries with labels, got a {type(batch).__name__}: count the "
            "targets yourself, and give the number as num_data"
        )
    for name in ("shift_labels", "labels"):
        if batch.get(name) is not None:
            return torch.as_tensor(batch[name]), name == "shift_labels"
    raise ValueError(
        f"data has no labels, only {', '.join(map(str, batch))}: give a loader whose collator "
        "makes them, or count the targets yourself, and give the number as num_data"
    )


def _shifts_labels(
    model: nn.Module | None, batch: Mapping[str, Any], examples: bool, ignore_index: float
) -> bool:
    """Whether the first label of a sequence is without effect on the model's loss."""
    if model is None:
        raise ValueError(
            "causal is not known: give causal=True if the loss shifts labels, as that of a causal "
            "language model does, causal=False if not, or give the model"
        )
    # The loss of the first label alone against that of none: they differ, unless labels shift.
    try:
        inputs = one_sequence(model, batch, examples)
        labels = inputs["labels"]
        none = torch.full_like(labels, ignore_index)
        first = none.clone()
        first[:, 0] = torch.where(labels == ignore_index, int(ignore_index == 0), labels)[:, 0]
        with quietly(model):
            losses = [model(**{**inputs, "labels": each}).loss for each in (first, none)]
    except Exception as error:
        raise ValueError(
            f"the model's loss could not be evaluated on the first example ({error}): call "
            "num_targets with causal=True or causal=False, and give its result as num_data"
        ) from error
    return torch.allclose(*losses, rtol=1e-3, equal_nan=True)


def one_sequence(model: nn.Module, batch: Mapping[str, Any], examples: bool) -> dict[str, Tensor]:
    """The inputs of `model` from an example, or from the first of a batch, as a batch of one."""
    device = next(model.parameters()).device
    takes = inspect.signature(inner_model(model).forward).parameters
    found: dict[str, Tensor] = {}
    for name, value in batch.items():
        if "labels" in takes and name not in takes:  # Trainer drops such columns, too
            continue
        with suppress(TypeError, ValueError, RuntimeError):  # a column of text
            found[name] = torch.as_tensor(value).to(device)
    is_example = examples and found["labels"].ndim < 2  # a list may hold batches
    return {name: tensor[None] if is_example else tensor[:1] for name, tensor in found.items()}


def inner_model(model: nn.Module) -> nn.Module:
    """The transformer inside a model with adapters."""
    get: Any = getattr(model, "get_base_model", lambda: model)
    return get()
