"""Checks that a `Trainer` samples: its arguments, and that its loss is the mean that N belongs to.

`Trainer` divides the summed losses of all batches of a step by their number of targets, and leaves
the division to the model. Two things can go wrong. Some models return the mean of each batch
anyway, and `Trainer` sums these over batches and processes. For others, `Trainer` counts all
labels, although the loss leaves out the first of each sequence.
"""

import inspect
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle
from transformers import TrainerState, TrainingArguments

from csgmcmc.batches import quietly
from csgmcmc.checks.num_data import examples_in, warn_of_num_data
from csgmcmc.checks.run import level_of_caller
from csgmcmc.errors import SamplingWarning
from csgmcmc.integrations.counting import (
    check_not_sequences,
    count_targets,
    each_of,
    gives_examples,
    inner_model,
    labels_of,
    one_sequence,
)
from csgmcmc.loaders import describe_loader
from csgmcmc.stepper import Stepper

TOLERANCE = 1e-3  # relative error of a number of targets
COUNT_BATCH = 64  # examples collated at once to count their targets


def check_clipping(args: TrainingArguments, allowed: bool) -> None:
    """Raise a `ValueError` for gradient clipping that is not allowed."""
    if args.max_grad_norm and not allowed:
        raise ValueError(
            f"max_grad_norm={args.max_grad_norm} clips gradients, which are then not those of "
            "the posterior: use TrainingArguments(max_grad_norm=0), or allow_clipping=True to "
            "clip all the same"
        )


def check_run(args: TrainingArguments, state: TrainerState, stepper: Stepper) -> None:
    """Raise a `ValueError` if the `Trainer` does not take the steps of the schedule."""
    steps = stepper.schedule.steps
    if state.max_steps != steps:
        raise ValueError(
            f"max_steps={state.max_steps} of the Trainer differs, as the schedule has "
            f"steps={steps}: use TrainingArguments(max_steps={steps})"
        )
    again = state.global_step == 0 and stepper.taken > 0
    if again or (state.global_step > 0 and not stepper.resumed):
        raise ValueError(
            f"the Trainer begins at step {state.global_step}, but the sampler has taken "
            f"{stepper.taken} steps: make a new sampler and callback for each run, and resume "
            "from checkpoints that were not saved with save_only_model=True"
        )
    if args.n_gpu > 1:
        raise ValueError(
            f"n_gpu={args.n_gpu}: one process would split its batches over GPUs; start one "
            "process per GPU with torchrun, or show it only one with CUDA_VISIBLE_DEVICES"
        )


def begin_in_words(stepper: Stepper) -> str:
    """What the run samples."""
    num_data = stepper.sampler.param_groups[0].get("num_data")
    what = f"{type(stepper.sampler).__name__} injects no noise: the draws are snapshots"
    if num_data is not None:
        what = f"sampling with N={num_data:,} targets in the loss"
    return f"{what}; {stepper.schedule.steps:,} steps, {stepper.schedule.total_draws} draws"


def skipped_in_words(stepper: Stepper) -> str:
    """What is missing at the end of a run that has skipped steps."""
    steps, taken = stepper.schedule.steps, stepper.taken
    missed = sum(stepper.schedule(step).collect for step in range(taken, steps))
    return (
        f"{steps - taken} steps were skipped because gradients overflowed, so the last "
        f"{steps - taken} steps of the schedule were not taken, and {missed} draws are missing"
    )


def count_and_tell(
    model: nn.Module,
    data: Any,
    collate: Callable[[list[Any]], Any] | None,
    noise_variance: float | None,
) -> float:
    """N of `data`; sets on `model` what a `Trainer` cannot find out about its loss."""
    if collate is not None:
        data = DataLoader(data, batch_size=COUNT_BATCH, collate_fn=collate)
    inner: Any = inner_model(model)
    some = next(each_of(data), None)
    if some is None:
        raise ValueError("data is empty: it gives no example")
    first, _ = labels_of(some)
    is_numbers = is_regression(model, first if gives_examples(data) else first[0])
    if is_numbers:  # whole numbers are no tokens here, and -100 is a number like any other
        num_data, causal = count_targets(data, model, False, math.nan)
    else:
        num_data, causal = count_targets(data, model, None, -100)
    if is_numbers:
        if noise_variance is None:
            raise ValueError(
                f"the loss of {type(inner).__name__} is a mean squared error, which is a negative "
                "log-likelihood only with a variance of the noise: give noise_variance=, in the "
                "squared unit of the labels, or num_data=targets / (2 * variance)"
            )
        num_data = num_data / (2 * noise_variance)
    elif noise_variance is not None:
        raise ValueError(
            f"noise_variance={noise_variance} is for regression, but the loss of "
            f"{type(inner).__name__} for these labels is not a mean squared error: leave it out"
        )
    if causal and getattr(inner, "loss_type", "") is None:
        inner.loss_type = "ForCausalLM"  # its default anyway
    takes = inspect.signature(inner.forward).parameters.values()
    takes_count = any(each.kind == inspect.Parameter.VAR_KEYWORD for each in takes)
    if not takes_count or hasattr(inner, "accepts_loss_kwargs"):
        return num_data
    with suppress(Exception):  # the model may need its collator: the first batch is checked later
        inputs = one_sequence(model, next(each_of(data)), gives_examples(data))
        inputs["labels"] = torch.where(inputs["labels"] == -100, 0, inputs["labels"])
        with quietly(model):
            one, two = (model(**inputs, num_items_in_batch=items).loss for items in (1, 2))
        if one.isfinite() and one > 0 and torch.allclose(one, two, rtol=TOLERANCE):
            inner.accepts_loss_kwargs = False
    return num_data


def check_first_batch(
    model: nn.Module, stepper: Stepper, loader: Any, *, batches: int, warns: bool
) -> RemovableHandle:
    """Check N and the loss at the first batch of `model`; warns or raises a `ValueError` there.

    `loader` is that of the training data, and `batches` the number of batches per step, over all
    processes. Of several processes, one `warns`.
    """
    num_data = stepper.sampler.param_groups[0].get("num_data")
    examples = describe_loader(loader)["examples"]

    def look(module: nn.Module, _: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        if not module.training:  # evaluation may come first
            return
        labels = inputs.get("labels")
        if isinstance(labels, Tensor):
            targets = labels[:, 1:] if labels.ndim > 1 and labels.shape[1] > 1 else labels
            if bool((targets == -100).all()):  # not informative: wait for the next batch
                return
            if not is_regression(module, labels[0]):
                check_not_sequences(labels, num_data, examples)
            if warns:
                _warn_of_num_data(stepper.sampler, module, loader, inputs)
            if inputs.get("num_items_in_batch") is not None:
                _check_divisor(module, inputs, batches)
        handle.remove()

    handle = model.register_forward_pre_hook(look, with_kwargs=True)
    return handle


def _warn_of_num_data(
    sampler: torch.optim.Optimizer, model: nn.Module, loader: Any, inputs: dict[str, Any]
) -> None:
    """Warn if N does not fit the labels."""
    labels, examples = inputs["labels"], examples_in(loader)
    each = labels[0].numel()
    if not is_regression(model, labels[0]):
        # The losses of Transformers are means over all labels. Tokens are counted elsewhere.
        terms = each if labels.is_floating_point() or each == 1 else None
        warn_of_num_data(sampler, loader, inputs, terms=lambda: terms)
    elif examples is not None and sampler.param_groups[0].get("num_data") == examples.size * each:
        warnings.warn(
            f"num_data={examples.size * each} is the number of targets, which makes the mean "
            "squared error the NLL of a noise variance of 0.5: make the sampler with num_data="
            "targets / (2 * noise variance), as trainer_parts(noise_variance=...) does",
            SamplingWarning,
            stacklevel=level_of_caller(),
        )


def is_regression(model: nn.Module, labels: Tensor) -> bool:
    """Whether the model's own loss is a mean squared error, as Transformers decides it.

    `labels` are those of one example. With one output they are numbers, whatever their dtype is;
    but a language model may have `num_labels=1`, too, and its sequences have many labels.
    """
    config = getattr(inner_model(model), "config", None)
    kind = getattr(config, "problem_type", None)
    if kind is not None:
        return kind == "regression"
    return getattr(config, "num_labels", None) == 1 and labels.numel() == 1


def _check_divisor(model: nn.Module, inputs: dict[str, Any], batches: int) -> None:
    items = float(inputs["num_items_in_batch"])
    found = _items_in_loss(model, inputs, items)
    name = "model.get_base_model()" if inner_model(model) is not model else "model"
    if found is None:
        if batches > 1:
            raise ValueError(
                f"the loss of {type(inner_model(model)).__name__} is the mean of one batch, but "
                f"Trainer sums it over the {batches} batches of a step, so that gradients are "
                f"{batches} times too large: set {name}.accepts_loss_kwargs = False before you "
                "make the Trainer"
            )
        return
    # With several batches, the number of items in this one is not known. But Trainer counts wrong
    # if the loss shifts labels and has no name.
    shifts = abs(found - float((inputs["labels"] != -100).sum())) > TOLERANCE * found
    unnamed = getattr(inner_model(model), "loss_type", "") is None
    wrong = abs(items - found) > TOLERANCE * found if batches == 1 else shifts and unnamed
    if wrong:
        raise ValueError(
            f"Trainer divides the loss of {type(inner_model(model)).__name__} by more tokens than "
            f"are in it ({items:.0f} in a step), since it does not know that labels are shifted: "
            f"set {name}.loss_type = 'ForCausalLM' before you make the Trainer, and upgrade "
            "transformers if that does not help"
        )


def _items_in_loss(model: nn.Module, inputs: dict[str, Any], items: float) -> float | None:
    """Number of targets of the batch in the loss; None if the model always takes the mean.

    The loss is sum / items, or sum / found if the model is not given items, plus terms that do not
    depend on them.
    """
    twice = {**inputs, "num_items_in_batch": 2 * inputs["num_items_in_batch"]}
    without = {name: value for name, value in inputs.items() if name != "num_items_in_batch"}
    with quietly(model):
        by_items, by_twice, mean = (float(model(**each).loss) for each in (inputs, twice, without))
    total = 2 * items * (by_items - by_twice)
    if abs(total) <= 1e-6 * items * abs(by_items):
        return None
    return 1 / ((mean - by_items) / total + 1 / items)
