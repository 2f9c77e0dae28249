"""Public constructors with values in and out of range: a result, or an error naming an argument.

All public classes are discovered. A new parameter without a default needs a good value in `GOOD`.
"""

import importlib
import inspect
import pkgutil
import warnings
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from joblib import parallel_config
from torch import nn
from torch.nn.functional import mse_loss

import csgmcmc
from csgmcmc import SGLD, Chain, Constant, DrawStore, MemoryDraws, Posterior, Stack, Stepper
from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Keep, Schedule
from tests.fuzzing import fuzz, raises_only_named_errors, values_of

DATA = [(torch.ones(4, 2), torch.ones(4, 1))]


def public_classes() -> dict[str, type]:
    """Every concrete class in the `__all__` of a module that checks its arguments."""
    found: dict[str, type] = {}
    modules = [entry.name for entry in pkgutil.walk_packages(csgmcmc.__path__, "csgmcmc.")]
    for name in ["csgmcmc", *modules]:
        try:
            module = importlib.import_module(name)
        except ImportError:  # of a package that is not installed
            continue
        for member in (getattr(module, each) for each in getattr(module, "__all__", ())):
            own = inspect.isclass(member) and member.__module__.startswith("csgmcmc.")
            if own and not inspect.isabstract(member) and not is_record(member):
                found[f"{member.__module__}.{member.__qualname__}"] = member
    outside = (".demo.", ".integrations.", ".targets.")
    return {name: kind for name, kind in found.items() if not any(o in name for o in outside)}


def is_record(kind: type) -> bool:
    """Whether it only holds its arguments: results, which this library makes itself."""
    is_plain = is_dataclass(kind) and not hasattr(kind, "__post_init__")
    return is_plain or issubclass(kind, (tuple, Exception)) or kind.__name__ == "States"


CLASSES = public_classes()


def make_parts() -> SimpleNamespace:
    """A model, its sampler and a draw."""
    model = nn.Linear(2, 1)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=4, seed=0)
    draws = MemoryDraws()
    draws.append(model, step=0)
    return SimpleNamespace(model=model, sampler=sampler, draws=draws)


GOOD: dict[str, Any] = {
    "cycles": lambda _: 2,
    "data": lambda _: DATA,
    "draws": lambda made: made.draws,
    "end": lambda _: 1.0,
    "gamma": lambda _: 0.6,
    "loader": lambda _: DATA,
    "loss": lambda _: mse_loss,
    "lr": lambda _: 0.1,
    "model": lambda made: made.model,
    "models": lambda made: [made.model, made.model],
    "num_data": lambda _: 10,
    "params": lambda made: list(made.model.parameters()),
    "path": lambda _: "store",
    "sampler": lambda made: made.sampler,
    "schedule": lambda _: Constant(4),
    "schedules": lambda _: [Constant(4)],
    "start": lambda _: 0.5,
    "stepper": lambda made: Stepper(made.model, made.sampler, Constant(4)),
    "steps": lambda _: 40,
    "variance": lambda _: 1.0,
}
QUICK: dict[str, Any] = {  # where the class has such a parameter
    "chains": 1,
    "batch_size": 4,
    "draws_per_cycle": 1,
    "epochs": 10,
    "hidden_layer_sizes": 2,
    "progress": False,
}


def good_arguments(kind: type) -> dict[str, Any]:
    """Arguments that the class accepts."""
    made, given = make_parts(), {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is inspect.Parameter.empty and name in GOOD:
            given[name] = GOOD[name](made)
        elif name in QUICK:
            given[name] = QUICK[name]
        elif issubclass(kind, (Schedule, Keep)) and name in ("draws", "per_cycle"):
            given[name] = 1
    return given


@st.composite
def calls(draw: Any) -> tuple[str, dict[str, Any]]:
    """The name of a class, and what to change of its good arguments."""
    name = draw(st.sampled_from(sorted(CLASSES)))
    parameters = inspect.signature(CLASSES[name]).parameters
    values = {each: values_of(parameter) for each, parameter in parameters.items()}
    for name_of_others in ("random_state", "device"):  # scikit-learn and torch check these
        values.pop(name_of_others, None)
    fuzzed = sorted(each for each, strategy in values.items() if strategy is not None)
    chosen = draw(st.lists(st.sampled_from(fuzzed), max_size=3, unique=True)) if fuzzed else []
    return name, {each: draw(values[each]) for each in chosen}


def use(made: Any) -> None:
    """Use the object: a bad argument may not fail later instead."""
    if isinstance(made, Sampler):
        for param in (each for group in made.param_groups for each in group["params"]):
            param.grad = torch.ones_like(param)
        made.step()
    elif isinstance(made, Schedule):
        _ = made(0), made(made.steps - 1), made.total_draws, made.total_cycles
    elif isinstance(made, Chain):
        made.run()
    elif isinstance(made, Posterior):
        made.predict(torch.zeros(3, 2))
    elif hasattr(made, "fit"):
        with parallel_config("sequential"):  # no processes, whatever n_jobs is
            made.fit(np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1]))
    elif isinstance(made, Stack):
        made(torch.zeros(3, 2))
    elif isinstance(made, DrawStore):
        made.append(nn.Linear(2, 1), step=0)
        [draw.tensors() for draw in made]
        made.close()


def check(case: tuple[str, dict[str, Any]]) -> None:
    name, changes = case
    arguments = {**good_arguments(CLASSES[name]), **changes}
    names = inspect.signature(CLASSES[name]).parameters
    raises_only_named_errors(lambda: use(CLASSES[name](**arguments)), names)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_good_arguments_are_accepted(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(action="ignore"):
        CLASSES[name](**good_arguments(CLASSES[name]))


@pytest.mark.slow
def test_fuzz_constructors():
    fuzz(calls(), check, examples=1000)
