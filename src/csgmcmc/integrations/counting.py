"""N, and the mean loss that it belongs to: for tokens, and for loops that accumulate batches."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from csgmcmc.loaders import describe_loader, quietly
from csgmcmc.loop.num_data import warn_of_num_data

# By the `loss_type` of a Transformers model, which it derives from the name of its class.
SHIFTING_LOSSES = {"ForCausalLM", "ForConditionalGeneration"}
ALIGNED_LOSSES = {"ForMaskedLM", "ForTokenClassification"}
# Models without a `loss_type`, whose loss is that of "ForCausalLM".
SHIFTING_MODELS = {"BertLMHeadModel", "CTRLLMHeadModel", "GPT2LMHeadModel", "OpenAIGPTLMHeadModel"}


def num_targets(
    data: Iterable[Any],
    model: nn.Module | None = None,
    *,
    causal: bool | None = None,
    ignore_index: float = -100,
) -> int:
    """N of a data set with `labels`: the number of targets in the mean loss over the data set.

    These are tokens for language models, and sequences for sequence classifiers. Masked tokens do
    not count, nor does the first token of each sequence if the loss shifts labels.

    Args:
        data: a loader of batches, or a data set of examples, which are dictionaries with `labels`.
            If a collator makes the labels, give a loader with that collator. All of it is read.
        model: a Transformers model, whose class says whether its loss shifts labels. Needed if
            there is one label per token and `causal` is not given.
        causal: whether the loss shifts labels: each token is predicted from those before it, and
            the first of a sequence is not predicted.
        ignore_index: label of masked targets.
    """
    total = 0
    shifts = shifts_labels(model) if causal is None else causal
    for batch in each_of(data):
        labels = labels_of(batch)
        by_token = has_token_labels(labels, examples=gives_examples(data))
        if causal and not by_token:
            shape = tuple(labels.shape)
            raise ValueError(f"causal=True needs a label for each token, got labels of {shape=}")
        if by_token and shifts is None:
            raise ValueError(
                f"causal is not known from the class of the model, {type(model).__name__}: give "
                "num_data=num_targets(data, causal=True) if its loss shifts labels, or causal=False"
            )
        if by_token and shifts:
            labels = labels[..., 1:]
        total += int((labels != ignore_index).sum())
    if not total:
        raise ValueError(f"data has no target: all labels are {ignore_index}, or it is empty")
    return total


def check_not_sequences(labels: Any, num_data: float | None, loader: Any) -> None:
    """Raise a `ValueError` if N is the number of sequences, but there are labels for each token."""
    if num_data is None or num_data != describe_loader(loader)["examples"]:
        return
    by_token = isinstance(labels, Tensor) and has_token_labels(labels, examples=False)
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


def labels_of(batch: Any) -> Tensor:
    """The labels of a batch or example."""
    if not isinstance(batch, Mapping) or batch.get("labels") is None:
        raise ValueError(
            "data must give dictionaries with labels: give a loader whose collator makes them, or "
            "count the targets yourself, and give the number as num_data"
        )
    return torch.as_tensor(batch["labels"])


def has_token_labels(labels: Tensor, *, examples: bool) -> bool:
    """Whether there is a label for each token: a second dimension in a batch of `examples`."""
    return labels.ndim >= (1 if examples else 2) and not labels.is_floating_point()


def shifts_labels(model: nn.Module | None) -> bool | None:
    """Whether the loss of a Transformers model shifts labels; None if its class does not say."""
    inner = inner_model(model)
    loss_type = getattr(inner, "loss_type", None)
    encodes = getattr(getattr(inner, "config", None), "is_encoder_decoder", False)
    if encodes or loss_type in ALIGNED_LOSSES:
        return False
    classes = {kind.__name__ for kind in type(inner).__mro__}
    return True if loss_type in SHIFTING_LOSSES or classes & SHIFTING_MODELS else None


def inner_model(model: Any) -> Any:
    """The transformer inside a model with adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def count_and_configure(
    model: nn.Module,
    data: Any,
    collate: Callable[[list[Any]], Any] | None,
    noise_variance: float | None,
) -> float:
    """N of `data`; sets the attributes of `model` from which `Trainer` derives its divisor."""
    if collate is not None:
        data = DataLoader(data, batch_size=64, collate_fn=collate)
    inner, examples = inner_model(model), gives_examples(data)
    name, labels = type(inner).__name__, labels_of(next(each_of(data), None))
    regresses = is_regression(model, labels if examples else labels[0])
    if regresses and noise_variance is None:
        raise ValueError(
            f"the loss of {name} is a mean squared error: give noise_variance=, in the squared "
            "unit of the labels, or num_data=targets / (2 * variance)"
        )
    if noise_variance is not None and not regresses:
        raise ValueError(f"noise_variance is for regression, and {name} is not trained for it")
    if getattr(inner, "loss_type", "") is None and shifts_labels(model):
        inner.loss_type = "ForCausalLM"  # its default anyway
    by_token = not regresses and has_token_labels(labels, examples=examples)
    if not by_token and not hasattr(inner, "accepts_loss_kwargs"):
        inner.accepts_loss_kwargs = False  # many return the mean of each batch anyway
    if noise_variance is None:
        return num_targets(data, model)
    # Whole numbers are not tokens here, and -100 is a number like any other.
    return num_targets(data, causal=False, ignore_index=math.nan) / (2 * noise_variance)


def check_first_batch(
    model: nn.Module, sampler: torch.optim.Optimizer, loader: Any, *, batches: int, warns: bool
) -> None:
    """Check N and the loss at the first batch of `model`; warns or raises a `ValueError` there.

    `batches` is the number of batches per step, over all processes, one of which `warns`.
    """

    def look(module: nn.Module, _: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        labels = inputs.get("labels")
        if not module.training or not isinstance(labels, Tensor):  # evaluation may come first
            return
        targets = labels[:, 1:] if labels.ndim > 1 and labels.shape[1] > 1 else labels
        if bool((targets == -100).all()):  # not informative: wait for the next batch
            return
        handle.remove()
        check_not_sequences(labels, sampler.param_groups[0].get("num_data"), loader)
        if warns and not is_regression(module, labels[0]):
            # The losses are means over all labels; tokens are counted elsewhere.
            each = labels[0].numel()
            terms = each if labels.is_floating_point() or each == 1 else None
            warn_of_num_data(sampler, loader, inputs, terms=lambda: terms)
        if inputs.get("num_items_in_batch") is not None:
            _check_divisor(module, inputs, batches)

    handle = model.register_forward_pre_hook(look, with_kwargs=True)


def is_regression(model: nn.Module, labels: Tensor) -> bool:
    """Whether the model's own loss is a mean squared error, as Transformers decides it.

    `labels` are those of one example: language models may have `num_labels=1`, too, but many.
    """
    config = getattr(inner_model(model), "config", None)
    one_number = getattr(config, "num_labels", None) == 1 and labels.numel() == 1
    kind = getattr(config, "problem_type", None)
    return one_number if kind is None else kind == "regression"


def _check_divisor(model: nn.Module, inputs: dict[str, Any], batches: int) -> None:
    """Raise a `ValueError` if `Trainer` divides the loss by the wrong number.

    It leaves the division of the summed losses to the model, which may return the mean of each
    batch anyway, and it may count the first label of each sequence, which the loss leaves out.
    """
    inner = inner_model(model)
    loss = f"the loss of {type(inner).__name__}"
    name = "model" if inner is model else "model.get_base_model()"
    if getattr(inner, "loss_type", "") is None and shifts_labels(model):
        raise ValueError(
            f"Trainer divides {loss} by more tokens than are in it, since it does not know that "
            f"labels are shifted: set {name}.loss_type = 'ForCausalLM' before you make the Trainer"
        )
    if batches == 1:
        return
    twice = {**inputs, "num_items_in_batch": 2 * inputs["num_items_in_batch"]}
    with quietly(model):
        one, two = (model(**each).loss for each in (inputs, twice))
    if torch.allclose(one, two, rtol=1e-3):
        raise ValueError(
            f"{loss} is the mean of one batch, but Trainer sums it over the {batches} batches of a "
            f"step, so that gradients are {batches} times too large: set "
            f"{name}.accepts_loss_kwargs = False before you make the Trainer"
        )


def rescale_short_accumulation(params: Iterable[Tensor], batches: int, divided_by: int) -> None:
    """Make gradients the mean over `batches`, too few at the end of an epoch for `divided_by`."""
    for param in params if batches < divided_by else ():
        if param.grad is not None:
            param.grad.mul_(divided_by / batches)
