"""Runs of a `Trainer` and of a `Chain` with the same settings."""

from typing import Any

from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainingArguments

from csgmcmc import SGHMC, Chain, Cyclical, MemoryDraws, Schedule
from csgmcmc.integrations.transformers import (
    SamplingCallback,
    model_loss,
    num_targets,
    trainer_parts,
)

SCHEDULE = Cyclical(steps=12, cycles=3, exploration=0.25, draws_per_cycle=2)
KEPT = [2, 3, 6, 7, 10, 11]
OPTIONS = {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.01, "seed": 3}


def arguments(folder, **options):
    return TrainingArguments(
        str(folder),
        **{
            "max_steps": SCHEDULE.steps,
            "max_grad_norm": 0,
            "per_device_train_batch_size": 2,
            "train_sampling_strategy": "sequential",
            "use_cpu": True,
            "report_to": [],
            "disable_tqdm": True,
            "logging_strategy": "no",
            "save_strategy": "no",
            **options,
        },
    )


def trained(
    folder,
    model,
    data,
    *,
    draws=None,
    resume=None,
    parts=None,
    callbacks=(),
    eval_dataset=None,
    **options,
) -> Any:
    """The draws of a Trainer."""
    draws = MemoryDraws() if draws is None else draws
    parts = parts or trainer_parts(model, data, SCHEDULE, draws, **OPTIONS)
    parts["callbacks"] += callbacks
    args = arguments(folder, **options)
    trainer = Trainer(model, args, train_dataset=data, eval_dataset=eval_dataset, **parts)
    trainer.train(resume_from_checkpoint=resume)
    return draws


def chained(model, data, batch_size=2, accumulate=1):
    """The draws of a Chain with the same settings."""
    sampler = SGHMC(model.parameters(), num_data=num_targets(data, model), **OPTIONS)
    loader = DataLoader(data, batch_size=batch_size)
    chain = Chain(
        model, model_loss, loader, sampler, SCHEDULE, accumulate=accumulate, progress=False
    )
    return chain.run()


def manual(model, data, draws, schedule: Schedule = SCHEDULE, **options: Any):
    """The three parts, made by hand."""
    options = {**OPTIONS, "num_data": num_targets(data, model), **options}
    sampler = SGHMC(model.parameters(), **options)
    callback = SamplingCallback(model, sampler, schedule, draws)
    return {"optimizers": (sampler, callback.scheduler), "callbacks": [callback]}


class Stop(TrainerCallback):
    """Ends the run after some steps, as if it had been killed."""

    def __init__(self, after):
        self.after = after

    def on_step_end(self, args, state, control, **parts):
        control.should_training_stop = state.global_step == self.after
