"""The callback and the scheduler with which a Hugging Face `Trainer` steps a `Stepper`."""

from typing import Any

import torch
from accelerate.state import AcceleratorState
from rich.console import Console
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers import TrainerCallback, TrainerState, TrainingArguments

from csgmcmc.distributed import ProcessLayout
from csgmcmc.draws import Draws
from csgmcmc.integrations import trainer_checks as checks
from csgmcmc.integrations.accelerate_checks import check_whole
from csgmcmc.schedules import Schedule
from csgmcmc.stepper import LoopWords, Stepper
from csgmcmc.stepper.words import describe_end

WORDS = LoopWords(
    resume="train(resume_from_checkpoint=True)",
    exact_resume="batches that are not random themselves",
    clip="TrainingArguments(max_grad_norm=...), with allow_clipping=True",
    mixed_precision="TrainingArguments(bf16=True)",
    steps="steps of the schedule and num_train_epochs",
    batch_size="per_device_train_batch_size",
)


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

    def on_init_end(self, args: TrainingArguments, *_: Any, **__: Any) -> None:
        """Raise a `ValueError` for gradient clipping without `allow_clipping`."""
        checks.check_clipping(args, self._allow_clipping)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **parts: Any
    ) -> None:
        """Check that the `Trainer` uses the sampler and the schedule, from the start to the end."""
        self.on_init_end(args)  # the arguments may have changed since
        check_whole(AcceleratorState().distributed_type)
        stepper = self.stepper
        inner = getattr(parts["optimizer"], "optimizer", parts["optimizer"])
        if inner is not stepper.sampler or parts["lr_scheduler"] is not self.scheduler:
            raise ValueError(
                "the Trainer's optimizer or scheduler is not the sampler's: make it with "
                "optimizers=(sampler, callback.scheduler), and without DeepSpeed"
            )
        checks.check_run(args, state, stepper)
        stepper.layout = ProcessLayout(replica_id=args.process_index, replicas=args.world_size)
        batches = args.gradient_accumulation_steps * args.world_size
        stepper.batches_per_step = float(batches)
        stepper.begin()
        shared = args.world_size if args.average_tokens_across_devices else 1
        self._stop_looking()
        self._hook = checks.check_first_batch(
            *(parts["model"], stepper, parts["train_dataloader"]),
            batches=args.gradient_accumulation_steps * shared,
            warns=state.is_world_process_zero,
        )
        if state.is_world_process_zero and not args.disable_tqdm:
            _say(checks.begin_in_words(stepper))

    def on_log(self, *_: Any, **__: Any) -> None:
        """Raise `DivergedError` if a weight is not finite, which the `Trainer` does not notice."""
        if self.stepper.taken:
            self.stepper.check_weights()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any
    ) -> None:
        """Print a message if the run ends before the schedule: early, or after skipped steps."""
        self._stop_looking()
        if not self.stepper.done and state.is_world_process_zero:
            skipped = state.global_step == state.max_steps
            _say((checks.skipped_in_words if skipped else describe_end)(self.stepper))

    def _stop_looking(self) -> None:
        if self._hook is not None:
            self._hook.remove()


def _say(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)
