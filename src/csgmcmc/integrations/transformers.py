"""Hugging Face `Trainer`: a sampler in place of its optimizer, and draws kept during training.

    parts = trainer_parts(model, data, schedule, draws, lr=0.1, weight_decay=1e-4)
    args = TrainingArguments("runs/trainer", max_steps=schedule.steps, max_grad_norm=0)
    Trainer(model, args, train_dataset=data, **parts).train()

N is the number of targets in the mean loss: tokens, for language models.
"""

from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader

from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws
from csgmcmc.integrations import require
from csgmcmc.integrations.counting import (
    IGNORED,
    check_first_batch,
    configure_loss,
    is_regression,
    labels_in,
    num_targets,
)
from csgmcmc.loop import Stepper
from csgmcmc.loop.display import describe_end
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.schedules import Schedule

require("transformers", "transformers")
require("accelerate", "transformers")

from accelerate.state import AcceleratorState
from transformers import TrainerCallback, TrainerState, TrainingArguments

__all__ = [
    "SamplingCallback",
    "logits",
    "model_loss",
    "next_token_logits",
    "next_token_targets",
    "num_targets",
    "trainer_parts",
]

SHARDING = ("DEEPSPEED", "FSDP", "MEGATRON_LM")


def trainer_parts(
    model: nn.Module,
    data: Any,
    schedule: Schedule,
    draws: Draws,
    *,
    lr: float,
    sampler: type[Sampler] = SGHMC,
    collate: Callable[[list[Any]], Any] | None = None,
    num_data: float | None = None,
    allow_clipping: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """The arguments `optimizers` and `callbacks` that make a `Trainer` sample.

    Args:
        model: the model for the `Trainer`; its trainable parameters are sampled.
        data: its `train_dataset`.
        schedule: scales lr and temperature at each step, and says which draws are kept.
        draws: where draws are kept.
        lr: step size, as for `torch.optim.SGD`.
        sampler: the class of the sampler.
        collate: its `data_collator`, if that makes the labels.
        num_data: N; by default the number of targets in the loss, as `num_targets` counts them.
            Required for regression: the model's loss is the mean squared error, so that N is the
            number of targets divided by twice the variance of the noise.
        allow_clipping: see `SamplingCallback`.
        options: further options of the sampler, e.g. `momentum=0.9`.
    """
    if num_data is None:
        source = data if collate is None else DataLoader(data, batch_size=64, collate_fn=collate)
        if is_regression(model, next(labels_in(source))[0]):
            raise ValueError(
                "num_data is needed for regression: the loss is a mean squared error, so that N is "
                "the number of targets / (2 * variance of the noise)"
            )
        num_data = num_targets(source, model)
    trained = [param for param in model.parameters() if param.requires_grad]
    made = sampler(trained, lr, num_data=num_data, **options)  # pyright: ignore[reportCallIssue]
    callback = SamplingCallback(model, made, schedule, draws, allow_clipping=allow_clipping)
    return {"optimizers": (made, callback.scheduler), "callbacks": [callback]}


class TrainerSchedule:
    """A stepper in place of the `Trainer`'s learning-rate scheduler, saved in its checkpoints."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def step(self) -> None:
        self._stepper.record()

    def get_last_lr(self) -> list[float]:
        return [float(group["lr"]) for group in self._stepper.sampler.param_groups]

    def state_dict(self) -> dict[str, Any]:
        return self._stepper.position()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._stepper.load_position(state_dict)


class SamplingCallback(TrainerCallback):
    """Keeps the draws of a `Trainer`, and checks that it samples the posterior.

    This sets `model.loss_type` or `model.accepts_loss_kwargs` where the `Trainer` would divide the
    loss by the wrong number otherwise, which is why it is made before the `Trainer`.

        callback = SamplingCallback(model, sampler, schedule, draws)
        Trainer(model, ..., optimizers=(sampler, callback.scheduler), callbacks=[callback])

    Args:
        model: the model for the `Trainer`.
        sampler: a sampler over its parameters, or any torch optimizer.
        schedule: scales lr and temperature at each step, and says which draws are kept.
        draws: where draws are kept.
        allow_clipping: let `Trainer` clip gradients. By default `max_grad_norm`, which is 1 unless
            you set it, must be 0: clipped gradients change the stationary distribution.
    """

    def __init__(
        self,
        model: nn.Module,
        sampler: torch.optim.Optimizer,
        schedule: Schedule,
        draws: Draws,
        *,
        allow_clipping: bool = False,
    ) -> None:
        configure_loss(model)
        self.stepper = Stepper(model, sampler, schedule, draws, hold_lock=False)
        self.scheduler = TrainerSchedule(self.stepper)
        """The second of the `Trainer`'s `optimizers`."""
        self._allow_clipping = allow_clipping

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **parts: Any
    ) -> None:
        """Check that the `Trainer` uses the sampler and the schedule, from the start to the end."""
        if args.max_grad_norm and not self._allow_clipping:
            raise ValueError(
                f"max_grad_norm={args.max_grad_norm} clips gradients, which are then not those of "
                "the posterior: use TrainingArguments(max_grad_norm=0), or allow_clipping=True"
            )
        kind = AcceleratorState().distributed_type.value
        if kind in SHARDING:
            raise ValueError(f"{kind} shards the model: use DDP, or csgmcmc.Chain with FSDP2")
        stepper = self.stepper
        optimizer = getattr(parts["optimizer"], "optimizer", parts["optimizer"])
        if optimizer is not stepper.sampler or parts["lr_scheduler"] is not self.scheduler:
            raise ValueError("the Trainer needs optimizers=(sampler, callback.scheduler)")
        steps = stepper.schedule.steps
        if state.max_steps != steps:
            raise ValueError(f"max_steps must be {steps}, as scheduled, got {state.max_steps}")
        if (state.global_step > 0) != (stepper.taken > 0):
            raise ValueError(
                f"the Trainer begins at step {state.global_step}, but the sampler has taken "
                f"{stepper.taken} steps: make a new sampler and callback for each run, and save "
                "checkpoints without save_only_model=True"
            )
        if args.n_gpu > 1:
            raise ValueError(f"n_gpu must be 1, got {args.n_gpu}: start a process per GPU")
        stepper.layout = ProcessLayout(replica_id=args.process_index, replicas=args.world_size)
        stepper.batches_per_step = float(args.gradient_accumulation_steps * args.world_size)
        stepper.begin()
        data, warns = parts["train_dataloader"], state.is_world_process_zero
        check_first_batch(parts["model"], stepper.sampler, data, warns=warns)
        if state.is_world_process_zero and not args.disable_tqdm:
            num_data = stepper.sampler.param_groups[0].get("num_data")
            given = "" if num_data is None else f" with N={num_data:,}"
            name, draws = type(stepper.sampler).__name__, stepper.schedule.total_draws
            _print(f"{name}{given}: {steps:,} steps, {draws} draws")

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.stepper.prepare()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any
    ) -> None:
        """Print a message if the run ends before the schedule: early, or after skipped steps."""
        if not self.stepper.done and state.is_world_process_zero:
            skipped = state.global_step - self.stepper.taken
            because = f"{skipped} steps were skipped because gradients overflowed; "
            _print(f"{because if skipped else ''}{describe_end(self.stepper)}")


def _print(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)


# For `Chain` and `Posterior`


def model_loss(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    """For `Chain(model, model_loss, ...)`: the loss that the model itself computes."""
    return model(**batch).loss


def logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=logits)`: the logits of inputs that are a dictionary."""
    return model(**{name: value for name, value in inputs.items() if name != "labels"}).logits


def next_token_logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=next_token_logits)`: logits of all tokens with a target, flattened.

    With `split=next_token_targets`, which flattens the targets. Without labels in the inputs, these
    are the logits of the token after each sequence.
    """
    found = logits(model, inputs)
    if "labels" not in inputs:
        mask = inputs.get("attention_mask")
        if mask is None:
            return found[:, -1]
        places = torch.arange(mask.shape[1], device=mask.device)
        return found[torch.arange(len(found), device=mask.device), (mask * places).argmax(-1)]
    return found[:, :-1][inputs["labels"][:, 1:] != IGNORED]


def next_token_targets(batch: dict[str, Any]) -> tuple[dict[str, Any], Tensor]:
    """For `Posterior(split=next_token_targets)`: a batch, and the tokens to predict, flattened."""
    following = batch["labels"][:, 1:]
    return batch, following[following != IGNORED]
