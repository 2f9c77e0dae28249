"""The task that a user's script gives to the commands: a model, a loss and data.

    def make_run():
        return model, loss, train_loader

`csgmcmc run my_module:make_run` samples it, `csgmcmc tune` searches for a recipe.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from csgmcmc.arguments import check_count, check_function, check_number, shown
from csgmcmc.batches import Loss
from csgmcmc.chain import Chain
from csgmcmc.checks.num_data import default_num_data
from csgmcmc.loaders import batches_of
from csgmcmc.posterior import Categorical, Likelihood
from csgmcmc.posterior.names import as_likelihood
from csgmcmc.randomness import check_generators, seeded
from csgmcmc.recipe import Recipe
from csgmcmc.stacked import Stack

# Arguments of `Chain` that come from the task's other fields or from the command.
RESERVED_CHAIN_OPTIONS = (
    *("model", "loss", "data", "sampler", "schedule", "draws", "chain_id", "layout"),
)

CHAIN_SEED_OFFSET = 1000
"""Seed offset between chains, so that runs with adjacent seeds do not overlap."""


@dataclass(frozen=True, eq=False)
class Task:
    """What to sample.

    Args:
        model: the network, freshly initialised.
        loss: mean negative log-likelihood, as `Chain` takes it.
        data: loader of the training data.
        validation: loader of held-out data, for scores and for tuning.
        likelihood: what the outputs mean, as `Posterior` takes it.
        num_data: N; by default the length of the data set of `data`, if each example has one
            target.
        recipe: the hyperparameters; by default `Recipe()`.
        chain_options: further arguments of `Chain`, e.g. `{"clip": 1.0}`.
        other: loader of inputs of another kind, whose entropy the report compares with that of
            `validation`; pairs may have any targets.
    """

    model: nn.Module
    loss: Loss
    data: Any
    validation: Iterable[Any] | None = None
    likelihood: str | Likelihood = "categorical"
    num_data: float | None = None
    recipe: Recipe = field(default_factory=Recipe)
    chain_options: Mapping[str, Any] = field(default_factory=dict)
    other: Iterable[Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.model, Stack):
            raise ValueError(
                "model must be a single network, not a stack: the command makes the chains"
            )
        if not isinstance(self.model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(self.model).__name__}")
        check_function("loss", self.loss)
        if self.num_data is not None:
            check_number("num_data", self.num_data, at_least=1)
        if not hasattr(self.data, "__iter__") or not hasattr(self.data, "__len__"):
            raise ValueError(f"data must be a loader with a length, got {type(self.data).__name__}")
        for name in ("validation", "other"):
            loader = getattr(self, name)
            if loader is not None and not hasattr(loader, "__iter__"):
                raise ValueError(f"{name} must be a loader or None, got {type(loader).__name__}")
        as_likelihood(self.likelihood)  # fail now, not at the end of the run
        if not isinstance(self.recipe, Recipe):
            raise ValueError(f"recipe must be a csgmcmc.Recipe, got {type(self.recipe).__name__}")
        arguments = signature(Chain).parameters
        allowed = [name for name in arguments if name not in RESERVED_CHAIN_OPTIONS]
        options = self.chain_options
        if not isinstance(options, Mapping) or not options.keys() <= set(allowed):
            raise ValueError(
                f"chain_options must be a dictionary of arguments of Chain, got {shown(options)}: "
                f"choose from {', '.join(allowed)}"
            )
        check_count("accumulate", options.get("accumulate", 1), at_least=1)
        check_generators(options.get("generators", ()))

    @property
    def size(self) -> float:
        """N: `num_data`, or the length of the data set of `data`."""
        if self.num_data is not None:
            return self.num_data
        return default_num_data(self.data, self.chain_options.get("generators", ()))

    def steps_per_epoch(self, replicas: int = 1) -> int:
        """Steps of an epoch, where `replicas` processes divide its batches among them."""
        batches = batches_of(self.data)
        whole = batches // replicas
        # The last batches are filled up, unless they are dropped.
        batches = whole if getattr(self.data, "drop_last", False) else -(-batches // replicas)
        return max(1, batches // self.chain_options.get("accumulate", 1))


MakeTask = Callable[[], Any]
"""A user's function: it returns a `Task`, a dictionary of its fields, or (model, loss, data)."""


def as_task(found: Any) -> Task:
    """The `Task` that a user's function has returned, in any of its forms."""
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
        "the function must return (model, loss, data) or (model, loss, data, validation), a "
        f"dictionary, or a csgmcmc.Task; it returned {what}"
    )


def make_task(make: MakeTask, seed: int) -> Task:
    """Call a user's function with the global generators seeded."""
    with seeded(seed):
        return as_task(make())


def with_new_model(task: Task, make: MakeTask, seed: int) -> Task:
    """The same data, with the model and the loss of another, seeded call of `make`."""
    other = make_task(make, seed)
    trained = {id(param) for param in task.model.parameters() if param.requires_grad}
    if any(id(param) in trained for param in other.model.parameters()):
        raise ValueError(
            "the function returned the same weights when it was called again: make the model "
            "inside the function, so that each chain or trial starts from its own weights"
        )
    return replace(task, model=other.model, loss=other.loss)


def with_own_start(task: Task, make: MakeTask, seed: int, chain_id: int) -> Task:
    """The task of one of several chains: the same data, other initial weights.

    The function is called again with the chain's seed, and only the model and the loss of what it
    returns are used. So a random split is the same for all chains: none trains on what another
    holds out. Frozen weights are those of `task`, that of chain 0. `seed` is that of the run.
    """
    if chain_id == 0:
        return task
    other = with_new_model(task, make, seed + CHAIN_SEED_OFFSET * chain_id)
    frozen = {name: p for name, p in task.model.named_parameters() if not p.requires_grad}
    with torch.no_grad():
        for name, param in other.model.named_parameters():
            if name in frozen:
                param.copy_(frozen[name])
    return other


def check_pairs(batches: list[Any], likelihood: str | Likelihood) -> list[Any]:
    """Return the batches of validation data, or raise if they cannot be scored."""
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
                "targets are not integers, so they are not classes: give the task a "
                "likelihood, for example csgmcmc.posterior.Gaussian(variance=0.1)"
            )
    return batches


def load_function(address: str) -> MakeTask:
    """The function at "module:function" or "path/to/file.py:function".

    Modules are also looked for in the current folder, and a file may import others beside it.
    """
    module_name, _, name = address.rpartition(":")
    if not module_name or not name:
        raise ValueError(f"{address!r} must be MODULE:FUNCTION, for example my_module:make_run")
    module = _load_file(module_name) if module_name.endswith(".py") else _load(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{module_name} has no function {name!r}")
    try:
        parameters = signature(function).parameters.values()
    except ValueError as error:  # of some that are written in C
        raise ValueError(f"{address} does not say what arguments it takes") from error
    required = [
        each.name
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if required:
        raise ValueError(f"{address} must take no arguments, but requires {', '.join(required)}")
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
    absent = f"there is no module {name!r} in this folder or installed"
    if name.startswith(".") or not name.isprintable():
        raise ValueError(absent)
    try:
        with seeded(0):  # all processes that import it have the same data, also to resume
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists; something that it imports does not
        raise ValueError(absent) from error
