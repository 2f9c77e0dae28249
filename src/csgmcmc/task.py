"""What a user's own script brings to the commands: a model, a loss and data.

    def make_run():
        return model, loss, train_loader

`csgmcmc run my_module:make_run` and `csgmcmc tune my_module:make_run` take it from there.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from torch import nn

from csgmcmc.chain.loop import Loss
from csgmcmc.posterior import Likelihood
from csgmcmc.recipe import Recipe


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
        if not isinstance(self.model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(self.model).__name__}")
        if not callable(self.loss):
            raise ValueError(f"loss must be a function, got {type(self.loss).__name__}")
        if not hasattr(self.data, "__iter__") or not hasattr(self.data, "__len__"):
            raise ValueError(f"data must be a loader with a length, got {type(self.data).__name__}")


MakeTask = Callable[[], Any]
"""A user's function: it returns a `Task`, a dictionary of its fields, or (model, loss, data)."""


def as_task(found: Any) -> Task:
    """What a user's function has returned, as a `Task`."""
    if isinstance(found, Task):
        return found
    if isinstance(found, tuple) and 3 <= len(found) <= 4:
        return Task(*found)
    if isinstance(found, Mapping):
        known = {each.name for each in fields(Task)}
        unknown = sorted(set(found) - known)
        if unknown:
            raise ValueError(f"{', '.join(unknown)} is not part of a task: choose from {known}")
        missing = sorted({"model", "loss", "data"} - set(found))
        if missing:
            raise ValueError(f"the task has no {', '.join(missing)}")
        return Task(**found)
    raise ValueError(
        "the function must return (model, loss, data), with validation data as a fourth if there "
        f"are any, a dictionary, or a csgmcmc.task.Task; it returned {type(found).__name__}"
    )


def load_function(address: str) -> MakeTask:
    """The function at "module:function"; the module may be a file of the current folder."""
    module_name, _, name = address.partition(":")
    if not module_name or not name:
        raise ValueError(f"{address!r} must be MODULE:FUNCTION, for example my_module:make_run")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    if module_name.endswith(".py"):
        module_name = module_name[: -len(".py")].replace("/", ".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module is there; something that it imports is not
        raise ValueError(
            f"there is no module {module_name!r} here or among what is installed"
        ) from (error)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"module {module_name!r} has no function {name!r}")
    return function
