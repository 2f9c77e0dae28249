"""Public constructors with good and bad arguments: a result, or a sentence that names an argument.

All public classes are discovered. A new parameter without a default needs a good value in `GOOD`.
"""

import importlib
import inspect
import os
import pkgutil
import tempfile
import warnings
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction
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
from csgmcmc import SGLD, Chain, Constant, DrawStore, MemoryDraws, Posterior, Recipe, Stack, Task
from csgmcmc.cli.messages import is_own
from csgmcmc.errors import CsgmcmcError
from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from csgmcmc.estimators.base import BayesianMLP
from csgmcmc.samplers import Sampler, States
from csgmcmc.schedules import Schedule
from csgmcmc.targets import Density, Mixture25, Target
from tests.fuzzing import fuzz

DATA = [(torch.ones(4, 2), torch.ones(4, 1))]


def public_classes() -> dict[str, type]:
    """Every concrete class in the `__all__` of a module, but exceptions."""
    found: dict[str, type] = {}
    modules = [entry.name for entry in pkgutil.walk_packages(csgmcmc.__path__, "csgmcmc.")]
    for name in ["csgmcmc", *modules]:
        try:
            module = importlib.import_module(name)
        except ImportError:  # of a package that is not installed
            continue
        for member in (getattr(module, each) for each in getattr(module, "__all__", ())):
            own = inspect.isclass(member) and member.__module__.startswith("csgmcmc.")
            if own and not inspect.isabstract(member) and not issubclass(member, Exception):
                found[f"{member.__module__}.{member.__qualname__}"] = member
    return found


def is_record(kind: type) -> bool:
    """Whether it holds anything that it is given: results, which this library makes itself."""
    plain = is_dataclass(kind) and not hasattr(kind, "__post_init__")
    return plain or issubclass(kind, tuple) or kind is States


CLASSES = {name: kind for name, kind in public_classes().items() if not is_record(kind)}


def parts() -> SimpleNamespace:
    """What belongs together."""
    model = nn.Linear(2, 1)
    sampler = SGLD(model.parameters(), lr=0.1, num_data=4, seed=0)
    draws = MemoryDraws()
    draws.append(model, step=0)
    return SimpleNamespace(model=model, sampler=sampler, draws=draws)


GOOD: dict[str, Any] = {
    "accelerator": lambda _: importlib.import_module("accelerate").Accelerator(cpu=True),
    "covariance": lambda _: torch.eye(2),
    "cycles": lambda _: 2,
    "data": lambda _: DATA,
    "end": lambda _: 1.0,
    "features": lambda _: torch.ones(3, 2),
    "gamma": lambda _: 0.6,
    "labels": lambda _: torch.ones(3),
    "loader": lambda _: DATA,
    "loss": lambda _: mse_loss,
    "lr": lambda _: 0.1,
    "mean": lambda _: torch.zeros(2),
    "means": lambda _: torch.zeros(3, 2),
    "model": lambda made: made.model,
    "models": lambda made: [made.model, made.model],
    "num_data": lambda _: 10,
    "params": lambda made: list(made.model.parameters()),
    "path": lambda _: "store",
    "points": lambda _: torch.zeros(3, 2),
    "progress": lambda _: False,
    "sampler": lambda made: made.sampler,
    "schedule": lambda _: Constant(4, every=2),
    "schedules": lambda _: [Constant(4)],
    "start": lambda _: 0.5,
    "stepper": lambda made: csgmcmc.Stepper(made.model, made.sampler, Constant(4)),
    "steps": lambda _: 40,
    "target": lambda _: Mixture25(),
    "variance": lambda _: 1.0,
}


def good(kind: type) -> dict[str, Any]:
    """Arguments that the class accepts."""
    made, given = parts(), {}
    parameters = inspect.signature(kind).parameters
    for name, parameter in parameters.items():
        required = parameter.default is inspect.Parameter.empty
        wanted = required or name == "progress"
        if wanted and name in GOOD and parameter.annotation not in (str, "str"):
            given[name] = GOOD[name](made)
    if issubclass(kind, Schedule) and "every" in parameters:
        given["every"] = 1
    if issubclass(kind, Recipe):
        given["lr"] = 0.1
    if issubclass(kind, Posterior):
        given["draws"] = made.draws
    if issubclass(kind, BayesianMLP):
        given |= {"chains": 1, "batch_size": 4, "hidden_layer_sizes": 2, "epochs": 10, "cycles": 2}
    if "draws" in parameters and parameters["draws"].default is inspect.Parameter.empty:
        given.setdefault("draws", MemoryDraws())
    return given


SAID = {"first_seed": "seed", "loader": "data"}
"""What some arguments are called in messages, because they are checked further inside."""

NUMBERS = [
    *(True, -1, 0, 1, 2, 2**63, 2**64, 10**30, 0.5, -0.5, 1e-320, 1e30, 1e308, -1e308),
    *(float("nan"), float("inf"), 1j, Decimal("0.5"), Decimal("NaN"), Fraction(1, 3)),
    *(np.float64(0.5), np.int64(3), np.float32("nan"), np.bool_(True), np.complex64(1)),
]
WORDS = ["", "x", "0.1", "[/b]", "a\0b", "\ud800", "cuda", "meta", b"", b"x", "uniform", "SGLD"]
ARRAYS = [
    *(np.array(0.5), np.array([1.0, float("nan")]), np.array("x"), np.datetime64("2020-01-01")),
    *(torch.tensor(0.5), torch.tensor([1.0, 2.0]), torch.zeros(0), torch.zeros(2, 2)),
    *(torch.zeros(2, dtype=torch.int64), torch.zeros(2, device="meta"), torch.eye(2).to_sparse()),
    *(torch.full((2,), float("nan")), torch.zeros(3, 2, dtype=torch.complex64)),
]
OTHERS = [
    *(
        None,
        [],
        [1],
        ["a"],
        [None],
        {},
        {"a": 1},
        {"momentum": "x"},
        (),
        (1, 2),
        (0.5, "x"),
        [[1, 2], 3],
    ),
    *(
        object(),
        int,
        print,
        nn.Linear,
        nn.Linear(2, 1),
        SGLD,
        Constant(4),
        Constant,
        [Constant(4), 5],
    ),
    *(torch.float16, torch.int8, torch.device("meta"), range(3), {1, 2}, DATA, slice(2)),
]
POOL = st.sampled_from([*NUMBERS, *WORDS, *ARRAYS, *OTHERS])
ANY = POOL | st.floats() | st.integers() | st.text(max_size=5) | st.lists(POOL, max_size=3)


@st.composite
def calls(draw: Any) -> tuple[str, dict[str, Any]]:
    """The name of a class, and what to change of its good arguments."""
    name = draw(st.sampled_from(sorted(CLASSES)))
    kind = CLASSES[name]
    names = [each for each in inspect.signature(kind).parameters if each not in ("args", "kwargs")]
    # Long runs are no error: those that are used take none of the numbers in between.
    values = POOL if issubclass(kind, (Chain, BayesianMLP)) else ANY
    chosen = draw(st.lists(st.sampled_from(names), max_size=3, unique=True)) if names else []
    return name, {each: draw(values) for each in chosen}


def use(made: Any) -> None:
    """What one does with it: an argument may not fail later instead."""
    if isinstance(made, Sampler):
        for param in (each for group in made.param_groups for each in group["params"]):
            param.grad = torch.ones_like(param)
        made.step()
    elif isinstance(made, Schedule):
        _ = made(0), made(made.steps - 1), made.total_draws, made.total_cycles
    elif isinstance(made, Chain):
        if made.accumulate < 100:  # many batches a step take long, which is no error
            made.run()
    elif isinstance(made, Posterior):
        made.predict(torch.zeros(3, 2))
    elif isinstance(made, (BayesianMLPClassifier, BayesianMLPRegressor)):
        with parallel_config("sequential"):  # no processes, whatever n_jobs is
            made.fit(np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1]))
    elif isinstance(made, Recipe):
        _ = made.to_json(), made.make_schedule(100)
        if made.lr is not None:
            use(made.make_sampler(nn.Linear(2, 1).parameters(), num_data=10))
    elif isinstance(made, Task):
        _ = made.size if made.num_data is not None else made.steps_per_epoch()
    elif isinstance(made, Target):
        own = next(each for each in vars(made).values() if isinstance(each, torch.Tensor))
        made.gradient(torch.zeros(1, made.dimension, dtype=own.dtype))
    elif isinstance(made, Density):
        if made.points.dtype == torch.float32:  # that of the target
            made().backward()
    elif isinstance(made, Stack):
        made(torch.zeros(3, 2))
    elif isinstance(made, DrawStore):
        made.append(nn.Linear(2, 1), step=0)
        [draw.tensors() for draw in made]
        made.close()


def check(case: tuple[str, dict[str, Any]]) -> None:
    name, changes = case
    kind = CLASSES[name]
    arguments = {**good(kind), **changes}
    # Functions in a user's place may raise what they like, and of data that do not fit the model.
    called = any(callable(value) for value in changes.values()) or "data" in changes
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            made = kind(**arguments)
            if not called:
                use(made)
        except CsgmcmcError:
            pass
        except ValueError as error:
            words = str(error)
            names = [SAID.get(each, each) for each in inspect.signature(kind).parameters]
            assert any(each in words for each in names), words
            assert not is_own(error) or "\n" not in words, words
        finally:
            os.chdir(before)


def test_all_constructors_are_found_and_their_good_arguments_are():
    assert len(CLASSES) > 25
    for name, kind in CLASSES.items():
        if ".integrations." not in name:  # which take what other packages have prepared
            with warnings.catch_warnings(action="ignore"):
                kind(**good(kind))


@pytest.mark.slow
def test_fuzz_constructors():
    fuzz(calls(), check, examples=3000)
