"""Public methods with values in and out of range, by the rule of `tests/test_fuzz.py`.

The methods are discovered. A new parameter without a default needs a good value in `ARGUMENTS`.
"""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import mse_loss

from csgmcmc import Chain, Constant, DrawStore, MemoryDraws, Posterior, Stepper
from csgmcmc.draws import Draw
from csgmcmc.noise.source import Noise
from csgmcmc.posterior import Gaussian
from csgmcmc.samplers import SGHMC, SGLD
from tests.fuzzing import fuzz, raises_only_named_errors, values_of
from tests.test_fuzz import DATA

KINDS = (Chain, Draw, DrawStore, MemoryDraws, Posterior, Stepper, Constant, SGHMC, SGLD, Noise)


def public_methods() -> dict[tuple[str, str], dict[str, inspect.Parameter]]:
    """Every public method with a number, flag or word as an argument, and its parameters."""
    found = {}
    for kind in KINDS:
        for name, function in inspect.getmembers(kind, callable):
            owner = next(base for base in kind.__mro__ if name in vars(base))
            if not owner.__module__.startswith("csgmcmc.") or name.startswith("_"):
                continue
            parameters = dict(inspect.signature(function).parameters)
            parameters.pop("self", None)
            is_variadic = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
            has_values = any(values_of(each) is not None for each in parameters.values())
            if has_values and not is_variadic and (kind.__name__, name) not in EXCLUDED:
                found[kind.__name__, name] = parameters
    return found


EXCLUDED = {
    *(("Constant", "tick"), ("Noise", "ahead"), ("Noise", "like")),  # called by the library
    ("Stepper", "extend"),  # by `Chain.run(extend=)`, which is tried
    *(("Posterior", "export"), ("Posterior", "report")),  # seconds for each call
    *((kind, "stationary_variance") for kind in ("SGHMC", "SGLD")),  # a formula, not a guard
}


def make_parts() -> dict[str, Any]:
    """One object of each class, which belong together."""
    model = nn.Linear(2, 1)
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    samplers = [kind(model.parameters(), lr=0.1, num_data=4, seed=0) for kind in (SGHMC, SGLD)]
    schedule, memory, store = Constant(4), MemoryDraws(), DrawStore("store")
    for draws in (memory, store):
        draws.append(model, step=0)
    options: dict[str, Any] = {"progress": False, "watch": False}
    objects = [
        Chain(model, mse_loss, DATA, samplers[0], schedule, **options),
        *(*samplers, schedule, memory, store, memory[0], Noise(0)),
        Stepper(model, samplers[0], schedule),
        Posterior(model, memory, likelihood=Gaussian(1.0), progress=False),
    ]
    return {type(one).__name__: one for one in objects}


ARGUMENTS: dict[str, Any] = {
    "chain_id": lambda _: 0,
    "data": lambda _: DATA,
    "draw": lambda made: made["Draw"],
    "draws": lambda made: made["MemoryDraws"],
    "group": lambda made: made["SGHMC"].param_groups[0],
    "inputs": lambda _: DATA[0][0],
    "loader": lambda _: DATA,
    "loss": lambda _: 1.0,
    "lr": lambda _: 0.1,
    "method": lambda _: "stacking",
    "model": lambda _: nn.Linear(2, 1),
    "name": lambda _: "weight",
    "num_data": lambda _: 4,
    "optimizer": lambda made: made["SGHMC"],
    "path": lambda _: "path",
    "state": lambda made: made["Stepper"].state_dict(),
    "step": lambda _: 1,
    "tick": lambda made: made["Constant"](0),
    "value": lambda _: -2.0,
}
METHODS = public_methods()
INNER_NAMES = ("data", "group", "noise", "state", "draw", "parameter")
"""Names in messages of arguments that are checked further inside."""


def call(case: tuple[str, str], changes: dict[str, Any]) -> None:
    """Call a method with good arguments, except for `changes`."""
    made, arguments = make_parts(), {}
    for name, parameter in METHODS[case].items():
        if parameter.default is inspect.Parameter.empty:
            arguments[name] = ARGUMENTS[name](made)
    try:
        found = getattr(made[case[0]], case[1])(**{**arguments, **changes})
        if isinstance(found, AbstractContextManager):
            with found:
                pass
        elif isinstance(found, Iterator):
            next(found, None)
    finally:
        made["DrawStore"].close()


@st.composite
def calls(draw: Any) -> tuple[tuple[str, str], dict[str, Any]]:
    """A method, and what to change of its good arguments."""
    case = draw(st.sampled_from(sorted(METHODS)))
    values = {name: values_of(parameter) for name, parameter in METHODS[case].items()}
    fuzzed = sorted(name for name, strategy in values.items() if strategy is not None)
    chosen = draw(st.lists(st.sampled_from(fuzzed), max_size=2, unique=True))
    return case, {name: draw(values[name]) for name in chosen}


def check(case: tuple[tuple[str, str], dict[str, Any]]) -> None:
    method, changes = case
    names = {*INNER_NAMES, *METHODS[method]}
    raises_only_named_errors(lambda: call(method, changes), names)


@pytest.mark.parametrize("case", sorted(METHODS), ids=".".join)
def test_good_arguments_are_accepted(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call(case, {})


@pytest.mark.slow
def test_fuzz_methods():
    fuzz(calls(), check, examples=1000)
