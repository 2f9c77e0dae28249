"""The chains of a script: the process, the seed and the data of each."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

from csgmcmc.arguments import check_count
from csgmcmc.chain import Chain
from csgmcmc.cli.messages import warnings_in_one_line
from csgmcmc.distributed import ProcessLayout, init_distributed
from csgmcmc.draws import DrawStore, keep_trainable
from csgmcmc.loaders import clone_loader
from csgmcmc.processes import side_by_side, threads_of_each
from csgmcmc.randomness import reseed, seeded
from csgmcmc.recipe import Recipe
from csgmcmc.stepper import LoopWords
from csgmcmc.task import CHAIN_SEED_OFFSET, MakeTask, Task, load_function, make_task, with_own_start

WORDS = LoopWords(
    resume="the same command",
    exact_resume=None,
    clip='chain_options={"clip": ...} of the script\'s task',
    mixed_precision='chain_options={"autocast": torch.bfloat16} of the script\'s task',
    lr="--lr",
    temperature="--temperature",
    steps="--epochs",
    cycles="--cycles",
    exploration="--exploration",
    burn_in=None,
    stacking='Posterior.weigh("stacking", held_out)',
)
MOST_JOBS = 2**10
BATCH_SEED_OFFSET = 500  # between the seed of a chain's initial weights and that of its batches


class Sampled(NamedTuple):
    """A finished chain and its task."""

    task: Task
    chain: Chain


def count_chains(chains: int | None) -> int:
    """Number of chains of a run: by default one per process of torchrun."""
    world = _variable("WORLD_SIZE", 1)
    total = world if chains is None else check_count("chains", chains, at_least=1, below=2**32)
    if total > world and total % world:
        raise ValueError(
            f"chains={total} cannot be divided among {world} processes: give a multiple of {world}"
        )
    return total


def check(task: Task, recipe: Recipe, chains: int) -> None:
    """Raise if the run cannot begin, before anything is written."""
    _ = task.size
    seed_of(recipe)
    replicas = max(1, _variable("WORLD_SIZE", 1) // chains)
    recipe.make_schedule(task.steps_per_epoch(replicas))


def check_jobs(jobs: int) -> int:
    """Number of processes that this command starts itself."""
    check_count("jobs", jobs, at_least=1, below=MOST_JOBS)
    if jobs > 1 and "WORLD_SIZE" in os.environ:
        raise ValueError(
            f"jobs={jobs} cannot be used under torchrun, which has started its processes already: "
            "leave out --jobs, or torchrun"
        )
    return jobs


def sample(
    make: MakeTask,
    task: Task,
    recipe: Recipe,
    out: Path,
    chains: int,
    *,
    resume: bool = True,
    on_ready: Callable[[], object] = lambda: None,
) -> Sampled:
    """Run the chains of this process in sequence, and return the first.

    `on_ready` is called when the first two have their initial weights.
    """
    world = _variable("WORLD_SIZE", 1)
    if chains < world:  # several processes for each chain
        here = init_distributed(chains)
        numbers = [here.chain_id]
    else:  # each chain is alone in its process, and needs no mesh
        here = replace(init_distributed(), chain_id=0, mesh=None)
        numbers = range(_variable("RANK", 0), chains, world)
    shown = _variable("RANK", 0) == 0
    found = _sample_some(make, task, recipe, out, chains, numbers, here, resume, shown, on_ready)
    return found[0]


def sample_side_by_side(
    script: str,
    make: MakeTask,
    task: Task,
    recipe: Recipe,
    out: Path,
    chains: int,
    jobs: int,
    *,
    resume: bool = True,
) -> Sampled:
    """Run the chains in processes that are started here, and return the first."""
    with_own_start(task, make, seed_of(recipe), 1)  # fails before a process is started
    jobs = min(jobs, chains)
    parts = (script, recipe, out, chains, jobs, resume)
    calls = [(number, (number, *parts)) for number in range(jobs)]
    for _ in side_by_side(_sample_in_process, calls, jobs=jobs, threads=threads_of_each(jobs)):
        pass
    # It is finished: this only reads its checkpoint.
    here = replace(init_distributed(), chain_id=0, chains=chains)
    return _sample_one(task, recipe, out, here, resume=True)


def _sample_in_process(
    number: int, script: str, recipe: Recipe, out: Path, chains: int, jobs: int, resume: bool
) -> None:
    """The chains of one of the processes: every `jobs`-th."""
    if torch.cuda.is_available():  # a device for each, where there are as many
        os.environ["LOCAL_RANK"] = str(number % torch.cuda.device_count())
    make = load_function(script)
    task = make_task(make, seed_of(recipe))
    numbers = range(number, chains, jobs)
    parts = (make, task, recipe, out, chains, numbers, init_distributed())
    with warnings_in_one_line():
        _sample_some(*parts, resume, shown=number == 0)


def _sample_some(
    make: MakeTask,
    task: Task,
    recipe: Recipe,
    out: Path,
    chains: int,
    numbers: Sequence[int],
    here: ProcessLayout,
    resume: bool,
    shown: bool,
    on_ready: Callable[[], object] = lambda: None,
) -> list[Sampled]:
    """Run some of the chains in sequence; the first, in a list."""

    def started(number: int) -> Task:
        return with_own_start(task, make, seed_of(recipe), number)

    # Two at a time, so that a script that cannot make a second model fails before the first runs.
    ready = [started(number) for number in numbers[:2]]
    on_ready()
    sampled: list[Sampled] = []
    for index, number in enumerate(numbers):
        where = replace(here, chain_id=number, chains=chains)
        found = _sample_one(ready.pop(0), recipe, out, where, resume=resume, shown=shown)
        sampled = [*sampled, found][:1]
        ready += [started(later) for later in numbers[index + 2 : index + 3]]
    return sampled


def _sample_one(
    task: Task,
    recipe: Recipe,
    out: Path,
    here: ProcessLayout,
    *,
    resume: bool,
    shown: bool = True,
) -> Sampled:
    seed = seed_of(recipe) + CHAIN_SEED_OFFSET * here.chain_id
    device = next((param.device for param in task.model.parameters()), here.device)
    device = here.device if device.type == "cpu" else device  # where the script has moved the model
    task.model.to(device)
    frozen = any(not param.requires_grad for param in task.model.parameters())
    store = DrawStore(out, only=keep_trainable(task.model) if frozen else None)
    options = {"device": device, "progress": shown, **task.chain_options}
    parts = (task.model, task.loss, divided(task.data, here, seed_of(recipe)), store)
    chain = recipe.make_chain(*parts, num_data=task.size, layout=here, **options)
    chain.stepper.words = WORDS
    if here.chain_id > 0:  # otherwise all chains would see the data in the same order
        for generator in chain.generators:
            reseed(generator, seed + BATCH_SEED_OFFSET)
    # A finished run whose checkpoints were deleted can still be scored.
    is_finished = len(store.of_chain(chain.chain_id)) == chain.schedule.total_draws
    if not is_finished or (out / "checkpoints").exists():
        with seeded(seed + BATCH_SEED_OFFSET + here.replica_id):
            chain.run(resume=resume)
    return Sampled(task, chain)


def seed_of(recipe: Recipe) -> int:
    """The seed of a run, without which it could not be resumed."""
    if recipe.seed is None:
        raise ValueError("seed must be a number, so that a stopped run can be resumed: give one")
    return recipe.seed


def divided(data: Any, here: ProcessLayout, seed: int) -> Any:
    """A loader that gives each replica of a chain its own part of the data."""
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
    order = here.data_sampler(data.dataset, shuffle=shuffle, seed=seed)
    return clone_loader(data, data.dataset, sampler=order)


def _variable(name: str, default: int) -> int:
    """An environment variable that torchrun sets."""
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise ValueError(f"{name} must be a whole number, as torchrun sets it, got {value!r}")
    return int(value)
