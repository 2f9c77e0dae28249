"""A loop with Accelerate, and what the processes of test_accelerate.py run: one chain's replicas.

The loop is that of examples/accelerate_loop.py.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from csgmcmc import (
    SGHMC,
    Chain,
    Cyclical,
    DrawStore,
    ProcessLayout,
    Stepper,
    shutdown_distributed,
)
from csgmcmc.draws import Draws
from csgmcmc.integrations.transformers import model_loss, num_targets, trainer_parts
from tests.integrations.tiny import bert, gpt2, llama, reviews, sentences

SCHEDULE = Cyclical(steps=12, cycles=3, exploration=0.25, draws_per_cycle=2)
OPTIONS: dict[str, Any] = {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.01}


def run_loop(
    model: torch.nn.Module,
    draws: Draws,
    *,
    folder: Path | None = None,
    until: int | None = None,
    resume: bool = False,
    seed: int = 3,
    batch_size: int = 2,
    shuffle: bool = False,
    accumulate: int = 1,
    schedule: Cyclical = SCHEDULE,
    masked: bool = True,
    cpu: bool = True,
    **options: Any,
) -> Stepper:
    """Sample `model` from the start, or from the state in `folder`; save there after `until`."""
    plugin = GradientAccumulationPlugin(num_steps=accumulate, sync_with_dataloader=False)
    accelerator = Accelerator(gradient_accumulation_plugin=plugin, cpu=cpu)
    data = sentences(masked=masked)
    generator = torch.Generator().manual_seed(9) if shuffle else None
    loader = DataLoader(data, batch_size, shuffle=shuffle, generator=generator)
    prepared, loader = accelerator.prepare(model, loader)
    options = {**OPTIONS, "num_data": num_targets(data, model), "seed": seed, **options}
    sampler = SGHMC(model.parameters(), **options)
    process, processes = accelerator.process_index, accelerator.num_processes
    layout = ProcessLayout(replica_id=process, replicas=processes)
    stepper = Stepper(model, sampler, schedule, draws, layout=layout)
    accelerator.register_for_checkpointing(stepper)
    if resume:
        accelerator.load_state(str(folder))
    for batch in stepper.batches(loader):
        with accelerator.accumulate(prepared):
            accelerator.backward(prepared(**batch).loss)
        if accelerator.sync_gradients:
            stepper.step()
            sampler.zero_grad()
            if stepper.taken == until:
                accelerator.save_state(str(folder))
                break
    accelerator.wait_for_everyone()
    return stepper


# In two processes


def parts_of(job: str) -> tuple[Any, Any]:
    """Model and data.

    Batches have unequal numbers of tokens for Trainer, which takes a mean over all of them.
    Accelerate takes a mean of means, which is the same where no token is masked.
    """
    if job == "trainer-classes":
        return bert(), reviews()
    return llama(), sentences(masked=job.startswith("trainer"))


def chained(job: str) -> Draws:
    """What two processes with batches of 2 should draw together."""
    model, data = parts_of(job)
    sampler = SGHMC(model.parameters(), num_data=num_targets(data, model), seed=3, **OPTIONS)
    loader = DataLoader(data, batch_size=4)
    return Chain(model, model_loss, loader, sampler, SCHEDULE, progress=False).run()


def with_accelerate(job: str, out: Path, seed: int) -> torch.nn.Module:
    if job != "accelerate-resume":
        run_loop(model := parts_of(job)[0], DrawStore(out / "draws"), seed=seed, masked=False)
        return model
    # With dropout the other process would not resume exactly: the state is that of the first.
    options: dict[str, Any] = {"shuffle": True, "accumulate": 2, "folder": out / "saved"}
    run_loop(gpt2(), DrawStore(out / "whole"), **options)
    run_loop(gpt2(), DrawStore(out / "draws"), until=4, **options)
    torch.manual_seed(99)
    run_loop(model := gpt2(), DrawStore(out / "draws"), resume=True, **options)
    return model


def with_trainer(job: str, out: Path, seed: int) -> torch.nn.Module:
    model, data = parts_of(job)
    args = TrainingArguments(
        str(out),
        max_steps=SCHEDULE.steps,
        max_grad_norm=0,
        per_device_train_batch_size=2,
        train_sampling_strategy="sequential",
        use_cpu=True,
        ddp_backend="gloo",
        report_to=[],
        save_strategy="no",
    )
    store = DrawStore(out / "draws")
    parts = trainer_parts(model, data, SCHEDULE, store, seed=seed, **OPTIONS)
    Trainer(model, args, train_dataset=data, **parts).train()
    return model


def main(job: str, out: Path) -> None:
    rank = int(os.environ["RANK"])
    seed = rank if job.endswith("seeds") else 3
    run = with_accelerate if job.startswith("accelerate") else with_trainer
    model = run(job, out, seed)
    torch.save(dict(model.named_parameters()), out / f"{rank}.pt")
    del model
    shutdown_distributed()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
