"""The chains of a script: in which process each runs, from which seed, on which data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from csgmcmc.arguments import check_count
from csgmcmc.chain import Chain
from csgmcmc.distributed import ProcessLayout, init_distributed
from csgmcmc.draws import DrawStore
from csgmcmc.draws.store import keep_trainable
from csgmcmc.recipe import Recipe, batches_of, size_of
from csgmcmc.schedules import Schedule
from csgmcmc.task import APART, MakeTask, Task, seeded, with_own_start

RUNNING = 500  # between the seed of a chain's start and that of its batches


@dataclass(frozen=True)
class Sampled:
    """A chain that is done: what is needed to judge its draws."""

    task: Task
    schedule: Schedule
    sampler: Mapping[str, Any] | None
    """State of the sampler; None where it is gone."""
    replicas: int


def count_chains(chains: int | None) -> int:
    """All chains of a run: by default one for each process of torchrun."""
    world = _variable("WORLD_SIZE", 1)
    total = world if chains is None else check_count("chains", chains, at_least=1)
    if total > world and total % world:
        raise ValueError(
            f"chains={total} cannot be divided among {world} processes: give a multiple of {world}"
        )
    return total


def check(task: Task, recipe: Recipe, chains: int) -> None:
    """Refuse a run that cannot begin, before anything is written."""
    _size(task)
    seed_of(recipe)
    replicas = max(1, _variable("WORLD_SIZE", 1) // chains)
    recipe.make_schedule(
        max(1, batches_of(task.data) // replicas // task.options.get("accumulate", 1))
    )


def sample(
    make: MakeTask, task: Task, recipe: Recipe, out: Path, chains: int, *, resume: bool = True
) -> Sampled:
    """Run this process's chains, one after another; what is returned is of the first."""
    world = _variable("WORLD_SIZE", 1)
    if chains < world:  # several processes for each chain
        here = init_distributed(chains)
        numbers = [here.chain_id]
    else:  # each chain is alone in its process, and needs no mesh
        here = replace(init_distributed(), chain_id=0, mesh=None)
        numbers = range(_variable("RANK", 0), chains, world)

    def started(number: int) -> Task:
        return with_own_start(task, make, seed_of(recipe), number)

    # Two at a time, so that a script that cannot make a second start is refused before the first.
    ready = [started(number) for number in numbers[:2]]
    sampled: list[Sampled] = []
    for index, number in enumerate(numbers):
        where = replace(here, chain_id=number, chains=chains)
        sampled = [*sampled, _sample_one(ready.pop(0), recipe, out, where, resume=resume)][:1]
        ready += [started(later) for later in numbers[index + 2 : index + 3]]
    return sampled[0]


def _sample_one(
    task: Task, recipe: Recipe, out: Path, here: ProcessLayout, *, resume: bool
) -> Sampled:
    seed = seed_of(recipe) + APART * here.chain_id
    device = _device_of(task.model, here)
    task.model.to(device)
    frozen = any(not param.requires_grad for param in task.model.parameters())
    store = DrawStore(out, only=keep_trainable(task.model) if frozen else None)
    options = {"device": device, "progress": _variable("RANK", 0) == 0, **task.options}
    chain = recipe.make_chain(
        task.model,
        task.loss,
        divided(task.data, here, seed_of(recipe)),
        store,
        num_data=_size(task),
        layout=here,
        **options,
    )
    if here.chain_id > 0:  # else all chains would go through the data in the same order
        for generator in chain.generators:
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed + RUNNING)
    gone = is_finished(store, chain) and not (out / "checkpoints").exists()
    if not gone:
        with seeded(seed + RUNNING + here.replica_id):
            chain.run(resume=resume)
    state = None if gone else chain.sampler.state_dict()
    return Sampled(task, chain.schedule, state, here.replicas)


def is_finished(store: DrawStore, chain: Chain) -> bool:
    """Whether a chain has all its draws; the last is that of the last step."""
    return len(store.of_chain(chain.chain_id)) == chain.schedule.total_draws


def seed_of(recipe: Recipe) -> int:
    """The seed of a run, which must be known for the run to go on."""
    if recipe.seed is None:
        raise ValueError("seed must be a number, so that a run that was stopped goes on: give one")
    return recipe.seed


def chain_like(sampled: Sampled, recipe: Recipe) -> Chain:
    """A chain of the same parts, on one process: for `Posterior.check`.

    Replicas of a chain average their gradients as batches that are accumulated do.
    """
    task = sampled.task
    trained = [param for param in task.model.parameters() if param.requires_grad]
    sampler = recipe.make_sampler(trained, num_data=_size(task))
    if sampled.sampler is not None:
        sampler.load_state_dict(dict(sampled.sampler))
    kept = {name: task.options[name] for name in ("autocast", "device") if name in task.options}
    accumulate = task.options.get("accumulate", 1) * sampled.replicas
    return Chain(
        *(task.model, task.loss, task.data, sampler, sampled.schedule),
        accumulate=accumulate,
        progress=False,
        **kept,
    )


def _size(task: Task) -> float:
    return size_of(task.data) if task.num_data is None else task.num_data


def _device_of(model: nn.Module, here: ProcessLayout) -> torch.device:
    """The process's own, unless the script has put the model elsewhere."""
    device = next((param.device for param in model.parameters()), here.device)
    return here.device if device.type == "cpu" else device


def divided(data: Any, here: ProcessLayout, seed: int) -> Any:
    """The loader that gives each replica of a chain its own part of the data."""
    sampler = getattr(data, "sampler", None)
    if here.replicas == 1 or isinstance(sampler, DistributedSampler):
        return data
    shuffle = isinstance(sampler, RandomSampler) and not sampler.replacement
    plain = type(data) is DataLoader and data.batch_size is not None
    if not plain or not (shuffle or isinstance(sampler, SequentialSampler)):
        raise ValueError(
            f"data cannot be divided among {here.replicas} processes: give a DataLoader that "
            "shuffles or does not, one whose sampler is "
            "csgmcmc.init_distributed(...).data_sampler(data set), or as many chains as processes"
        )
    names = (
        *("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout"),
        *("worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor"),
        *("persistent_workers", "pin_memory_device"),
    )
    return DataLoader(
        data.dataset,
        sampler=here.data_sampler(data.dataset, shuffle=shuffle, seed=seed),
        **{name: getattr(data, name) for name in names},
    )


def _variable(name: str, default: int) -> int:
    """What torchrun says."""
    return int(os.environ.get(name, default))
