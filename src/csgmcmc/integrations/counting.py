"""N of data with labels for each token, and the mean loss that it belongs to."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from csgmcmc.loaders import describe_loader
from csgmcmc.loop.num_data import LossFacts, warn_of_num_data

# By the `loss_type` of a Transformers model, which it derives from the name of its class.
SHIFTING_LOSSES = {"ForCausalLM", "ForConditionalGeneration"}
ALIGNED_LOSSES = {"ForMaskedLM", "ForTokenClassification"}
IGNORED = -100  # the label of masked targets


def num_targets(
    data: Iterable[Any], model: nn.Module | None = None, *, causal: bool | None = None
) -> int:
    """N of a data set with `labels`: the number of targets in the mean loss over the data set.

    These are tokens for language models, and sequences for sequence classifiers. Masked tokens,
    with the label -100, do not count, nor does the first token of each sequence if the loss shifts
    labels.

    Args:
        data: a loader of batches, or a data set of examples, which are dictionaries with `labels`.
            If a collator makes the labels, give a loader with that collator. All of it is read.
        model: a Transformers model, whose class says whether its loss shifts labels. Needed if
            there is one label per token and `causal` is not given.
        causal: whether the loss shifts labels: each token is predicted from those before it, and
            the first of a sequence is not predicted.
    """
    total, shifts = 0, shifts_labels(model) if causal is None else causal
    for labels in labels_in(data):
        by_token = has_token_labels(labels)
        if by_token and shifts is None:
            raise ValueError(
                f"causal is not known from the class of the model, {type(model).__name__}: give "
                "num_data=num_targets(data, causal=True) if its loss shifts labels, or causal=False"
            )
        targets = labels[..., 1:] if by_token and shifts else labels
        total += int((targets != IGNORED).sum())
    return total


def labels_in(data: Any) -> Iterator[Tensor]:
    """The labels of each batch of a loader; each example of a data set is a batch of one."""
    has_examples, batches = hasattr(data, "__getitem__"), data
    if has_examples and not isinstance(data, IterableDataset):
        batches = (data[index] for index in range(len(data)))  # iterating some never ends
    for batch in batches:
        if not isinstance(batch, Mapping) or batch.get("labels") is None:
            raise ValueError(
                "data must give dictionaries with labels: give a loader whose collator makes them, "
                "or count the targets yourself, and give the number as num_data"
            )
        labels = torch.as_tensor(batch["labels"])
        yield labels[None] if has_examples else labels


def has_token_labels(labels: Tensor) -> bool:
    """Whether there is a label for each token of a batch."""
    return labels.ndim > 1 and not labels.is_floating_point()


def shifts_labels(model: nn.Module | None) -> bool | None:
    """Whether the loss of a Transformers model shifts labels; None if its class does not say."""
    inner = inner_model(model)
    loss_type = getattr(inner, "loss_type", None)
    encodes = getattr(getattr(inner, "config", None), "is_encoder_decoder", False)
    if encodes or loss_type in ALIGNED_LOSSES:
        return False
    # GPT-2 and a few others have no `loss_type`; their loss is that of "ForCausalLM".
    is_causal = loss_type in SHIFTING_LOSSES or type(inner).__name__.endswith("LMHeadModel")
    return True if is_causal else None


def inner_model(model: Any) -> Any:
    """The transformer inside a model with adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def configure_loss(model: nn.Module) -> None:
    """Set the attributes from which a `Trainer` derives the divisor of the model's loss.

    It divides by its own count of the targets of a step if the model takes such a count. Only token
    losses of Transformers use it; other losses are means of a batch, which it must average.
    """
    inner = inner_model(model)
    loss_type = getattr(inner, "loss_type", "")
    if loss_type is None and shifts_labels(inner):
        loss_type = inner.loss_type = "ForCausalLM"  # its default anyway, unknown to the Trainer
    names = inspect.unwrap(type(inner).forward).__code__.co_names
    if "loss_function" not in names or loss_type not in SHIFTING_LOSSES | ALIGNED_LOSSES:
        inner.accepts_loss_kwargs = False


def check_first_batch(
    model: nn.Module, sampler: torch.optim.Optimizer, loader: Any, *, warns: bool
) -> None:
    """Check N at the first batch of `model`; one of the processes `warns`.

    If N is the number of sequences, but there are labels for each token, it is an error.
    """

    def look(module: nn.Module, _: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        labels = inputs.get("labels")
        if not module.training or not isinstance(labels, Tensor):  # evaluation may come first
            return
        targets = labels[:, 1:] if labels.ndim > 1 and labels.shape[1] > 1 else labels
        counted = int((targets != IGNORED).sum())
        if not counted:  # wait for the next batch
            return
        handle.remove()
        by_token = has_token_labels(labels) and counted > len(labels)
        num_data = sampler.param_groups[0].get("num_data")
        if by_token and num_data == describe_loader(loader)["examples"]:
            raise ValueError(
                f"num_data={num_data} is the number of sequences, but the loss is a mean over "
                "tokens: make the sampler with num_data=num_targets(data, model)"
            )
        if warns and not is_regression(module, labels[0]):
            # The losses are means over all labels; tokens are counted elsewhere.
            each = labels[0].numel()
            terms = each if labels.is_floating_point() or each == 1 else None
            warn_of_num_data(sampler, loader, inputs, LossFacts(terms))

    handle = model.register_forward_pre_hook(look, with_kwargs=True)


def is_regression(model: nn.Module, labels: Tensor) -> bool:
    """Whether the model's own loss is a mean squared error, as Transformers decides it.

    `labels` are those of one example: language models may have `num_labels=1`, too, but many.
    """
    config = getattr(inner_model(model), "config", None)
    one_number = getattr(config, "num_labels", None) == 1 and labels.numel() == 1
    kind = getattr(config, "problem_type", None)
    return one_number if kind is None else kind == "regression"
