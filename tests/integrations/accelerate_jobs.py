"""What the processes of tests/integrations/test_accelerate.py run: two replicas of one chain."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from csgmcmc import SGHMC, Chain, Cyclical, DrawStore, shutdown_distributed
from csgmcmc.draws import Draws
from csgmcmc.integrations.accelerate import AcceleratedRun, num_targets
from csgmcmc.integrations.transformers import model_loss, trainer_parts
from tests.integrations.tiny import bert, llama, reviews, sentences

SCHEDULE = Cyclical(steps=6, cycles=1, exploration=0.5, draws_per_cycle=2)
OPTIONS: dict[str, Any] = {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.01}


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
    accelerator = Accelerator(cpu=True)
    plain, data = parts_of(job)
    made = SGHMC(plain.parameters(), num_data=num_targets(data, plain), seed=seed, **OPTIONS)
    model, sampler, loader = accelerator.prepare(plain, made, DataLoader(data, batch_size=2))
    run = AcceleratedRun(accelerator, model, sampler, SCHEDULE, DrawStore(out / "draws"))
    for batch in run.batches(loader):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            run.step()
    return plain


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
