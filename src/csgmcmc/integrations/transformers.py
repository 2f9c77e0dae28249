"""Hugging Face `Trainer`: a sampler in the place of its optimizer, and draws kept as it trains.

    parts = trainer_parts(model, data, schedule, draws, lr=0.1, weight_decay=1e-4)
    args = TrainingArguments("runs/trainer", max_steps=schedule.steps, max_grad_norm=0)
    Trainer(model, args, train_dataset=data, **parts).train()

N is the number of targets that the loss is a mean over: tokens, for language models.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.hooks import RemovableHandle

from csgmcmc.draws import Draws
from csgmcmc.integrations.counting import count_targets, each_of, gives_examples, num_targets
from csgmcmc.integrations.missing import require
from csgmcmc.integrations.steps import Steps, check_draws
from csgmcmc.integrations.trainer_loss_check import check_first_batch, tell_trainer
from csgmcmc.loaders import describe_loader
from csgmcmc.samplers import SGHMC, Sampler
from csgmcmc.schedules import Schedule

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
    "KeepDraws",
    "Pairs",
    "TrainerSchedule",
    "logits",
    "model_loss",
    "next_token_logits",
    "num_targets",
    "trainer_parts",
]

COUNT_BATCH = 64  # examples that are collated at once, only to count their targets


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
    """What makes a `Trainer` a sampler: its arguments `optimizers` and `callbacks`.

    Call it before the `Trainer` is made: where `Trainer` would divide the model's loss by the wrong
    number, `model.loss_type` or `model.accepts_loss_kwargs` is set.

    Args:
        model: the model that the `Trainer` gets; what of it is trainable is sampled.
        data: its `train_dataset`.
        schedule: how much of lr and temperature each step uses, and which draws are kept.
        draws: where to keep them.
        lr: step size, as for `torch.optim.SGD`.
        sampler: the kind of sampler.
        collate: its `data_collator`, where that makes the labels.
        num_data: N; by default the number of targets in the loss, as `num_targets` counts them.
        allow_clipping: see `KeepDraws`.
        options: further options of the sampler, e.g. `momentum=0.9`.
    """
    if not (isinstance(sampler, type) and issubclass(sampler, Sampler)):
        raise ValueError(
            f"sampler must be a csgmcmc sampler, such as SGHMC, got {sampler!r}: the class, not an "
            "object; for any other optimizer use TrainerSchedule and KeepDraws"
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
    steps = TrainerSchedule(made, schedule)
    callback = KeepDraws(steps, draws, allow_clipping=allow_clipping)
    return {"optimizers": (made, steps), "callbacks": [callback]}


class TrainerSchedule(Steps):
    """A schedule in the place of the `Trainer`'s learning-rate scheduler.

    It sets lr and temperature, and is saved in the `Trainer`'s checkpoints.
    """

    resume = "train(resume_from_checkpoint=True)"
    exact = "batches that are not random themselves"
    clip = "TrainingArguments(max_grad_norm=...), with allow_clipping=True"
    mixed = "TrainingArguments(bf16=True)"

    def step(self) -> None:
        """What `Trainer` calls after each step of the optimizer that was not skipped."""
        self.advance()

    def get_last_lr(self) -> list[float]:
        """The lr of each parameter group, as `Trainer` logs it."""
        return [float(group["lr"]) for group in self.sampler.param_groups]


class KeepDraws(TrainerCallback):
    """Keeps a draw after each step that the schedule says, and holds the `Trainer` to the contract.

    Args:
        schedule: the one in `optimizers=(sampler, schedule)`.
        draws: where to keep them.
        allow_clipping: let `Trainer` clip gradients. By default `max_grad_norm`, which is 1 unless
            you say otherwise, must be 0: clipped gradients are not those of the posterior, and
            where clipping acts, the law is another one.
    """

    def __init__(
        self, schedule: TrainerSchedule, draws: Draws, *, allow_clipping: bool = False
    ) -> None:
        if not isinstance(schedule, TrainerSchedule):
            raise ValueError(
                f"schedule must be the TrainerSchedule of optimizers=, got a "
                f"{type(schedule).__name__}"
            )
        check_draws(draws)
        self.schedule, self.draws, self._allow_clipping = schedule, draws, allow_clipping
        self._seen = 0
        self._hook: RemovableHandle | None = None

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Refuse gradient clipping that nobody has asked for."""
        if args.max_grad_norm and not self._allow_clipping:
            raise ValueError(
                f"max_grad_norm={args.max_grad_norm} clips gradients, which are then not those of "
                "the posterior: say TrainingArguments(max_grad_norm=0), or allow_clipping=True if "
                "you mean it"
            )

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Check that the `Trainer` uses the sampler and the schedule, from the start to the end."""
        self.on_init_end(args, state, control)  # the arguments may have changed since
        check_whole(AcceleratorState().distributed_type)
        steps = self.schedule
        inner = getattr(parts["optimizer"], "optimizer", parts["optimizer"])
        if inner is not steps.sampler or parts["lr_scheduler"] is not steps:
            raise ValueError(
                "the Trainer's optimizer or scheduler is not the sampler's: make it with "
                "optimizers=(sampler, schedule), and without DeepSpeed"
            )
        if state.max_steps != steps.schedule.steps:
            raise ValueError(
                f"max_steps={state.max_steps} is what the Trainer will take, but the schedule has "
                f"steps={steps.schedule.steps}: say TrainingArguments(max_steps="
                f"{steps.schedule.steps})"
            )
        again = state.global_step == 0 and steps.taken > 0
        if again or (state.global_step > 0 and not steps.resumed):
            raise ValueError(
                f"the Trainer begins at step {state.global_step}, but the sampler has taken "
                f"{steps.taken} steps: make sampler and schedule anew for each run, and resume "
                "from checkpoints that were not saved with save_only_model=True"
            )
        if args.n_gpu > 1:
            raise ValueError(
                f"n_gpu={args.n_gpu}: one process would deal its batches out to GPUs; start one "
                "for each GPU with torchrun, or let it see only one with CUDA_VISIBLE_DEVICES"
            )
        shared = args.world_size if args.average_tokens_across_devices else 1
        batches = args.gradient_accumulation_steps * shared
        steps.begin(self.draws, writes=state.is_world_process_zero, replicas=args.world_size)
        self._seen = steps.taken
        num_data = steps.sampler.param_groups[0].get("num_data")
        self._stop_looking()
        self._hook = check_first_batch(
            parts["model"],
            num_data=num_data,
            examples=describe_loader(parts["train_dataloader"])["examples"],
            batches=batches,
        )
        if state.is_world_process_zero and not args.disable_tqdm:
            what = f"{type(steps.sampler).__name__} draws no noise: what is kept are snapshots"
            if num_data is not None:
                what = f"sampling with N={num_data:,} targets in the loss"
            _say(f"{what}; {steps.schedule.steps:,} steps, {steps.schedule.total_draws} draws")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **parts: Any
    ) -> None:
        """Keep the weights after the step, if it was taken and the schedule says so."""
        steps = self.schedule
        if steps.taken == self._seen:  # skipped: gradients overflowed in half precision
            return
        self._seen = steps.taken
        tick = steps.schedule(steps.taken - 1)
        if tick.collect:
            steps.keep(parts["model"], self.draws, tick, writes=state.is_world_process_zero)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Stop if the weights are no longer finite, which the `Trainer` does not see."""
        if self.schedule.taken:
            self.schedule.check_weights(self.schedule.schedule(self.schedule.taken - 1))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Say so if skipped steps have left the schedule's end undone."""
        self._stop_looking()
        steps = self.schedule
        left = steps.schedule.steps - steps.taken
        if left and state.global_step == state.max_steps and state.is_world_process_zero:
            missed = sum(
                steps.schedule(step).collect for step in range(steps.taken, steps.schedule.steps)
            )
            _say(
                f"{left} steps were skipped because gradients overflowed, so that the schedule's "
                f"last {left} were not taken, and {missed} draws are missing"
            )

    def _stop_looking(self) -> None:
        if self._hook is not None:
            self._hook.remove()


def _say(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True)


# For Chain and Posterior, which know nothing of dictionaries


def model_loss(model: nn.Module, batch: dict[str, Any]) -> Tensor:
    """For `Chain(model, model_loss, ...)`: the loss that the model itself works out."""
    return model(**batch).loss


def logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=logits)`: the logits for inputs that are a dictionary."""
    return model(**{name: value for name, value in inputs.items() if name != "labels"}).logits


def next_token_logits(model: Callable[..., Any], inputs: dict[str, Any]) -> Tensor:
    """For `Posterior(forward=next_token_logits)`: of all tokens that have a target, in one row.

    The targets are those of `Pairs(loader, causal=True)`; without labels in the inputs, the logits
    are those of the token after each sequence.
    """
    found = logits(model, inputs)
    if "labels" not in inputs:
        mask = inputs.get("attention_mask")
        if mask is None:
            return found[:, -1]
        places = torch.arange(mask.shape[1], device=mask.device)
        return found[torch.arange(len(found), device=mask.device), (mask * places).argmax(-1)]
    return found[:, :-1][inputs["labels"][:, 1:] != -100]


class Pairs:
    """Batches that are dictionaries, as pairs of inputs and targets that `Posterior` reads.

    Args:
        loader: a loader of dictionaries with `labels`.
        causal: of a causal language model: the targets are the labels of all tokens that are
            predicted, in one row, as `next_token_logits` gives their logits.
    """

    def __init__(self, loader: Iterable[dict[str, Any]], *, causal: bool = False) -> None:
        self._loader, self._causal = loader, causal

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Tensor]]:
        for batch in self._loader:
            inputs, labels = dict(batch), batch["labels"]
            if self._causal:
                following = labels[:, 1:]
                yield inputs, following[following != -100]
            else:
                yield {name: inputs[name] for name in inputs if name != "labels"}, labels

    def __len__(self) -> int:
        return len(self._loader)  # pyright: ignore[reportArgumentType]
