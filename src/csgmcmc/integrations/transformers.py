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
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws
from csgmcmc.integrations.counting import count_targets, each_of, gives_examples, num_targets
from csgmcmc.integrations.missing import require
from csgmcmc.integrations.trainer_loss_check import check_first_batch, tell_trainer
from csgmcmc.integrations.transformers_data import (
    Pairs,
    logits,
    model_loss,
    next_token_logits,
)
from csgmcmc.loaders import describe_loader
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.schedules import Schedule
from csgmcmc.stepper import LoopWords, Stepper

require("transformers", "transformers")
require("accelerate", "transformers")

from accelerate.state import AcceleratorState  # noqa: E402
from transformers import (  # noqa: E402
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from csgmcmc.integrations.accelerate import check_whole  # noqa: E402

__all__ = [
    "Pairs",
    "SamplingCallback",
    "logits",
    "model_loss",
    "next_token_logits",
    "num_targets",
    "trainer_parts",
]

WORDS = LoopWords(
    resume="train(resume_from_checkpoint=True)",
    exact_resume="batches that are not random themselves",
    clip="TrainingArguments(max_grad_norm=...), with allow_clipping=True",
    mixed_precision="TrainingArguments(bf16=True)",
)
COUNT_BATCH = 64  # examples collated at once to count their targets


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

    Call it before the `Trainer` is made: if `Trainer` would divide the model's loss by the wrong
    number, this sets `model.loss_type` or `model.accepts_loss_kwargs`.

    Args:
        model: the model for the `Trainer`; its trainable parameters are sampled.
        data: its `train_dataset`.
        schedule: scales lr and temperature at each step, and says which draws are kept.
        draws: where draws are kept.
        lr: step size, as for `torch.optim.SGD`.
        sampler: the class of the sampler.
        collate: its `data_collator`, if that makes the labels.
        num_data: N; by default the number of targets in the loss, as `num_targets` counts them.
        allow_clipping: see `SamplingCallback`.
        options: further options of the sampler, e.g. `momentum=0.9`.
    """
    if not (isinstance(sampler, type) and issubclass(sampler, Sampler)):
        raise ValueError(
            f"sampler must be a csgmcmc sampler, such as SGHMC, got {sampler!r}: the class, not an "
            "object; for any other optimizer use SamplingCallback"
        )
    if num_data is None:
        loader = data
        if collate is not None:
            loader = DataLoader(data, batch_size=COUNT_BATCH, collate_fn=collate)
        num_data, causal = count_targets(loader, model, None, -100)
        first = next(each_of(loader))
        tell_trainer(model, first, examples=gives_examples(loader), causal=causal)
    trained = [param for param in model.parameters() if param.requires_grad]
    if not trained:
        raise ValueError("model has no trainable parameter: nothing to sample")
    try:
        made = sampler(trained, lr, num_data=num_data, **options)  # pyright: ignore[reportCallIssue]
    except TypeError as error:  # an option that this sampler does not have
        raise ValueError(f"options do not fit {sampler.__name__}: {error}") from error
    callback = SamplingCallback(model, made, schedule, draws, allow_clipping=allow_clipping)
    return {"optimizers": (made, callback.scheduler), "callbacks": [callback]}


class TrainerSchedule:
    """The schedule of a stepper in place of the `Trainer`'s learning-rate scheduler.

    It sets lr and temperature, keeps the draws, and is saved in the `Trainer`'s checkpoints.
    """

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def step(self) -> None:
        """`Trainer` calls this after each step of the optimizer that was not skipped."""
        self._stepper.record()
        self._stepper.prepare()

    def get_last_lr(self) -> list[float]:
        """The lr of each parameter group, as `Trainer` logs it."""
        return [float(group["lr"]) for group in self._stepper.sampler.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """The stepper's position; `Trainer` saves model and sampler itself."""
        return self._stepper.position()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from the stepper's position."""
        self._stepper.load_position(state_dict)


class SamplingCallback(TrainerCallback):
    """Keeps the draws of a `Trainer`, and checks that it samples the posterior.

        callback = SamplingCallback(model, sampler, schedule, draws)
        Trainer(model, ..., optimizers=(sampler, callback.scheduler), callbacks=[callback])

    Args:
        model: the model for the `Trainer`.
        sampler: a sampler over its parameters, or any torch optimizer.
        schedule: scales lr and temperature at each step, and says which draws are kept.
        draws: where draws are kept.
        allow_clipping: let `Trainer` clip gradients. By default `max_grad_norm`, which is 1 unless
            you set it, must be 0: where clipping acts, the stationary distribution is not the
            posterior.
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
        self.stepper = Stepper(model, sampler, schedule, draws, words=WORDS, hold_lock=False)
        self.scheduler = TrainerSchedule(self.stepper)
        """The second of the `Trainer`'s `optimizers`."""
        self._allow_clipping = allow_clipping
        self._hook: RemovableHandle | None = None

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Raise a `ValueError` for gradient clipping without `allow_clipping`."""
        if args.max_grad_norm and not self._allow_clipping:
            raise ValueError(
                f"max_grad_norm={args.max_grad_norm} clips gradients, which are then not those of "
                "the posterior: use TrainingArguments(max_grad_norm=0), or allow_clipping=True to "
                "clip all the same"
            )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Check that the `Trainer` uses the sampler and the schedule, from the start to the end."""
        self.on_init_end(args, state, control)  # the arguments may have changed since
        check_whole(AcceleratorState().distributed_type)
        stepper, steps = self.stepper, self.stepper.schedule.steps
        inner = getattr(parts["optimizer"], "optimizer", parts["optimizer"])
        if inner is not stepper.sampler or parts["lr_scheduler"] is not self.scheduler:
            raise ValueError(
                "the Trainer's optimizer or scheduler is not the sampler's: make it with "
                "optimizers=(sampler, callback.scheduler), and without DeepSpeed"
            )
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
        shared = args.world_size if args.average_tokens_across_devices else 1
        batches = args.gradient_accumulation_steps * shared
        stepper.layout = ProcessLayout(replica_id=args.process_index, replicas=args.world_size)
        stepper.begin()
        num_data = stepper.sampler.param_groups[0].get("num_data")
        self._stop_looking()
        self._hook = check_first_batch(
            parts["model"],
            num_data=num_data,
            examples=describe_loader(parts["train_dataloader"])["examples"],
            batches=batches,
        )
        if state.is_world_process_zero and not args.disable_tqdm:
            what = f"{type(stepper.sampler).__name__} injects no noise: the draws are snapshots"
            if num_data is not None:
                what = f"sampling with N={num_data:,} targets in the loss"
            _say(f"{what}; {steps:,} steps, {stepper.schedule.total_draws} draws")

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Raise `DivergedError` if a weight is not finite, which the `Trainer` does not notice."""
        if self.stepper.taken:
            self.stepper.check_weights()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Print a message if skipped steps have left the schedule incomplete."""
        self._stop_looking()
        schedule, taken = self.stepper.schedule, self.stepper.taken
        left = schedule.steps - taken
        if left and state.global_step == state.max_steps and state.is_world_process_zero:
            missed = sum(schedule(step).collect for step in range(taken, schedule.steps))
            _say(
                f"{left} steps were skipped because gradients overflowed, so the last {left} steps "
                f"of the schedule were not taken, and {missed} draws are missing"
            )

    def _stop_looking(self) -> None:
        if self._hook is not None:
            self._hook.remove()


def _say(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True)
