"""What a user's own script brings to the commands: a model, a loss and data.

    def make_run():
        return model, loss, train_loader

`csgmcmc run my_module:make_run` and `csgmcmc tune my_module:make_run` take it from there.
"""

import importlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from csgmcmc.batches import Loss
from csgmcmc.chain import Chain
from csgmcmc.posterior import Categorical, Likelihood
from csgmcmc.posterior.likelihoods import as_likelihood
from csgmcmc.randomness import random_state, restore_random_state
from csgmcmc.recipe import Recipe
from csgmcmc.stacked import Stack

# Options of `Chain` that are not the script's to give: the task's own fields, and what commands do.
TAKEN = ("model", "loss", "data", "sampler", "schedule", "draws", "chain_id", "layout")

APART = 1000
"""Seeds of the chains of one run are so far apart, so that those of the next seed are others."""


@dataclass(frozen=True, eq=False)
class Task:
    """What to sample.

    Args:
        model: the network, newly made.
        loss: mean negative log-likelihood, as `Chain` takes it.
        data: loader of the training data.
        validation: loader of held-out data, for scores and for tuning.
        likelihood: what the outputs mean, as `Posterior` takes it.
        num_data: N; by default the length of the data set of `data`.
        recipe: the method; by default that of `Recipe()`.
        options: further options of `Chain`, e.g. `{"clip": 1.0}`.
    """

    model: nn.Module
    loss: Loss
    data: Any
    validation: Iterable[Any] | None = None
    likelihood: str | Likelihood = "categorical"
    num_data: float | None = None
    recipe: Recipe = field(default_factory=Recipe)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.model, Stack):
            raise ValueError(
                "model must be a single network, not a stack: chains are counted apart"
            )
        if not isinstance(self.model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(self.model).__name__}")
        if not callable(self.loss):
            raise ValueError(f"loss must be a function, got {type(self.loss).__name__}")
        if not hasattr(self.data, "__iter__") or not hasattr(self.data, "__len__"):
            raise ValueError(f"data must be a loader with a length, got {type(self.data).__name__}")
        if self.validation is not None and not hasattr(self.validation, "__iter__"):
            raise ValueError(
                f"validation must be a loader or None, got {type(self.validation).__name__}"
            )
        as_likelihood(self.likelihood)  # now, not when the run is done
        if not isinstance(self.recipe, Recipe):
            raise ValueError(f"recipe must be a csgmcmc.Recipe, got {type(self.recipe).__name__}")
        known = [name for name in signature(Chain).parameters if name not in TAKEN]
        if not isinstance(self.options, Mapping) or not self.options.keys() <= set(known):
            raise ValueError(
                f"options must be a dictionary of options of Chain, got {self.options!r}: choose "
                f"from {', '.join(known)}"
            )


MakeTask = Callable[[], Any]
"""A user's function: it returns a `Task`, a dictionary of its fields, or (model, loss, data)."""


def as_task(found: Any) -> Task:
    """What a user's function has returned, as a `Task`."""
    if isinstance(found, Task):
        return found
    if isinstance(found, tuple) and 3 <= len(found) <= 4:
        return Task(*found)
    if isinstance(found, Mapping):
        known = [each.name for each in fields(Task)]
        unknown = [str(name) for name in found if name not in known]
        if unknown:
            raise ValueError(
                f"{', '.join(unknown)} is not part of a task: choose from {', '.join(known)}"
            )
        absent = [name for name in ("model", "loss", "data") if name not in found]
        if absent:
            raise ValueError(f"the task has no {', '.join(absent)}")
        return Task(**found)
    what = f"a tuple of {len(found)}" if isinstance(found, tuple) else type(found).__name__
    raise ValueError(
        "the function must return (model, loss, data), with validation data as a fourth if there "
        f"are any, a dictionary, or a csgmcmc.Task; it returned {what}"
    )


def make_task(make: MakeTask, seed: int) -> Task:
    """What a user's function returns when the global generators are seeded."""
    with seeded(seed):
        return as_task(make())


def with_own_start(task: Task, make: MakeTask, seed: int, chain: int) -> Task:
    """The task of one of several chains: the same data, another start.

    The function is called again, seeded for the chain, and of what it returns only the model and
    the loss are taken. So a split that it makes at random is the same for all chains, and what one
    of them holds out no other trains on. Weights that are frozen are those of `task`, too.

    Args:
        task: that of the first chain.
        make: the function that it is from.
        seed: of the run.
        chain: number of the chain.
    """
    if chain == 0:
        return task
    other = make_task(make, seed + APART * chain)
    trained = {id(param) for param in task.model.parameters() if param.requires_grad}
    if any(id(param) in trained for param in other.model.parameters()):
        raise ValueError(
            "the function returned the same weights when it was called again: make the model "
            "inside of it, so that each chain has a start of its own"
        )
    frozen = {name: p for name, p in task.model.named_parameters() if not p.requires_grad}
    with torch.no_grad():
        for name, param in other.model.named_parameters():
            if name in frozen:
                param.copy_(frozen[name])
    return replace(task, model=other.model, loss=other.loss)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python; afterwards they are as before."""
    before = random_state([])
    try:
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002  (users' code draws from it)
        random.seed(seed)
        yield
    finally:
        restore_random_state(before, [])


def check_pairs(batches: list[Any], likelihood: str | Likelihood) -> list[Any]:
    """The batches of validation data, if they can be scored."""
    if not batches:
        raise ValueError("validation is empty: it gives no batch")
    for batch in batches:
        pair = isinstance(batch, (tuple, list)) and len(batch) == 2
        if not pair or not isinstance(batch[1], Tensor):
            raise ValueError(
                "validation must give pairs of inputs and targets, the targets a tensor"
            )
        if isinstance(as_likelihood(likelihood), Categorical) and batch[1].is_floating_point():
            raise ValueError(
                "targets are not whole numbers, so they are no classes: give the task a "
                "likelihood, for example csgmcmc.posterior.Gaussian(variance=0.1)"
            )
    return batches


def load_function(address: str) -> MakeTask:
    """The function at "module:function" or "path/to/file.py:function".

    A module may be a file of the current folder; beside a file, others can be imported.
    """
    module_name, _, name = address.rpartition(":")
    if not module_name or not name:
        raise ValueError(f"{address!r} must be MODULE:FUNCTION, for example my_module:make_run")
    module = _load_file(module_name) if module_name.endswith(".py") else _load(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{module_name} has no function {name!r}")
    required = [
        each.name
        for each in signature(function).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if required:
        raise ValueError(f"{address} must take no arguments, but wants {', '.join(required)}")
    return function


def _load_file(name: str) -> ModuleType:
    path = Path(name).resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {name}")
    module = _load(path.stem, path.parent)
    if Path(module.__file__ or "").resolve() != path:
        raise ValueError(
            f"{name} has the name of another module, {module.__name__}: give the file another name"
        )
    return module


def _load(name: str, folder: Path | None = None) -> ModuleType:
    home = str(folder or Path.cwd())
    if home not in sys.path:
        sys.path.insert(0, home)
    absent = f"there is no module {name!r} here or among what is installed"
    if name.startswith("."):
        raise ValueError(absent)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise ValueError(absent) from error
