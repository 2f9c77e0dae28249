"""Public methods with good and bad arguments, by the rule of `tests/test_fuzz.py`.

The methods are discovered. A new parameter without a default needs a good value in `ARGUMENTS`.
"""

import inspect
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import mse_loss

from csgmcmc import Chain, Constant, DrawStore, MemoryDraws, Posterior, Recipe, Stepper
from csgmcmc.cli.messages import is_own
from csgmcmc.draws import Draw
from csgmcmc.errors import CsgmcmcError
from csgmcmc.posterior import Gaussian
from csgmcmc.samplers import SGHMC, SGLD, SGNHT, Noise
from tests.fuzzing import fuzz
from tests.test_fuzz import DATA, POOL

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Chain, Draw, DrawStore, MemoryDraws, Posterior, Recipe, Stepper),
        *(Constant, SGHMC, SGNHT, Noise),
    )
}

BY_THE_LIBRARY = {
    *("update", "fused_terms", "gradient_gain", "injected_variance", "check_options"),
    *("tick", "make_plain", "like", "ahead", "batch_loss"),
}
"""Methods that users implement or that the library calls, with arguments that it has checked."""

SLOW = {"export", "report"}  # seconds for each good call
SAID = ("data", "group", "noise", "recipe", "state")
"""What some arguments are called in messages, because they are checked further inside."""

DATA_NAMES = {"data", "inputs", "loader", "other", "batch"}
"""Arguments that reach the user's own model and loss, which may raise what they like."""


def public_methods() -> dict[tuple[str, str], Any]:
    """Every public method of the classes above that this library defines, with arguments."""
    found: dict[tuple[str, str], Any] = {}
    for name, kind in KINDS.items():
        for method, function in inspect.getmembers(kind, callable):
            owner = next(base for base in kind.__mro__ if method in vars(base))
            own = owner.__module__.startswith("csgmcmc.") and not method.startswith("_")
            if own and method not in BY_THE_LIBRARY | SLOW and names_of(function):
                found[name, method] = function
    return found


def names_of(function: Any) -> dict[str, inspect.Parameter]:
    """Its parameters but `self`."""
    parameters = inspect.signature(function).parameters
    return {name: one for name, one in parameters.items() if name != "self"}


class Parts(dict[str, Any]):
    """Objects that belong together, by the name of their class, made when they are asked for."""

    def __missing__(self, name: str) -> Any:
        self[name] = MAKE[name](self)
        return self[name]


def make_model(_: Parts) -> nn.Module:
    model = nn.Linear(2, 1)
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    return model


def make_sampler(kind: Any, made: Parts) -> Any:
    return kind(made["model"].parameters(), lr=0.1, num_data=4, seed=0)


def with_a_draw(draws: Any, made: Parts) -> Any:
    draws.append(made["model"], step=0, log_likelihood=-1.0)
    return draws


def make_chain(made: Parts) -> Chain:
    parts = (made["model"], mse_loss, DATA, made["SGHMC"], made["Constant"])
    return Chain(*parts, progress=False, watch=False)


def make_stepper(made: Parts) -> Stepper:
    return Stepper(made["model"], make_sampler(SGLD, made), made["Constant"])


def make_posterior(made: Parts) -> Posterior:
    parts = (made["model"], made["MemoryDraws"])
    return Posterior(*parts, likelihood=Gaussian(1.0), progress=False)


def make_recipe(_: Parts) -> Recipe:
    recipe = Recipe(lr=0.1, cycles=1, draws_per_cycle=1, epochs=10)
    Path("recipe.json").write_text(recipe.to_json())
    return recipe


MAKE: dict[str, Callable[[Parts], Any]] = {
    "Chain": make_chain,
    "Constant": lambda _: Constant(4, every=2),
    "Draw": lambda made: made["MemoryDraws"][0],
    "DrawStore": lambda made: with_a_draw(DrawStore("store"), made),
    "MemoryDraws": lambda made: with_a_draw(MemoryDraws(), made),
    "Noise": lambda _: Noise(0),
    "Posterior": make_posterior,
    "Recipe": make_recipe,
    "SGHMC": partial(make_sampler, SGHMC),
    "SGNHT": partial(make_sampler, SGNHT),
    "Stepper": make_stepper,
    "model": make_model,
}

ARGUMENTS: dict[str, Any] = {
    "batch": lambda _: DATA[0],
    "chain_id": lambda _: 0,
    "chain_ids": lambda _: [0],
    "curvature": lambda _: 1.0,
    "data": lambda _: DATA,
    "draw": lambda made: made["Draw"],
    "draws": lambda made: made["MemoryDraws"],
    "epoch": lambda _: 5,
    "group": lambda made: made["SGHMC"].param_groups[0],
    "inputs": lambda _: DATA[0][0],
    "loader": lambda _: DATA,
    "loss": lambda _: mse_loss,
    "lr": lambda _: 0.1,
    "method": lambda _: "uniform",
    "model": lambda _: nn.Linear(2, 1),
    "name": lambda _: "weight",
    "num_data": lambda _: 4,
    "optimizer": lambda made: made["SGHMC"],
    "param": lambda _: torch.zeros(2),
    "param_group": lambda _: {"params": [nn.Parameter(torch.zeros(2))]},
    "params": lambda made: list(made["model"].parameters()),
    "path": lambda _: "recipe.json",
    "state_dict": lambda made: made["SGHMC"].state_dict(),
    "step": lambda _: 1,
    "steps": lambda _: 2,
    "tick": lambda made: made["Constant"](0),
    "value": lambda _: -2.0,
}
OWN: dict[tuple[str, str], dict[str, Any]] = {
    ("Stepper", "load_state_dict"): {"state": lambda made: made["Stepper"].state_dict()},
    ("Stepper", "check_state"): {"state": lambda made: made["Stepper"].state_dict()},
    ("Stepper", "load_position"): {"state": lambda made: made["Stepper"].position()},
    ("Stepper", "check_loss"): {"loss": lambda _: 1.0},
    ("Recipe", "make_chain"): {"num_data": lambda _: 4},
    ("Stepper", "step"): {"loss": lambda _: 1.0},
    ("Noise", "load_state_dict"): {"state": lambda _: Noise(1).state_dict()},
    ("SGNHT", "load_state_dict"): {"state_dict": lambda made: made["SGNHT"].state_dict()},
    ("SGNHT", "set_lr"): {"group": lambda made: made["SGNHT"].param_groups[0]},
}
METHODS = public_methods()
IN_FILES = st.binary(max_size=12) | st.sampled_from(
    [b"[]", b"{}", b'{"lr": 1e999}', b'{"lr": "x"}']
)


def good_arguments(case: tuple[str, str], made: dict[str, Any]) -> dict[str, Any]:
    """What the method accepts; optional arguments stay out."""
    given = {}
    for name, parameter in names_of(METHODS[case]).items():
        required = parameter.default is inspect.Parameter.empty or name in OWN.get(case, {})
        if required and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            given[name] = {**ARGUMENTS, **OWN.get(case, {})}[name](made)
    return given


@st.composite
def calls(draw: Any) -> tuple[tuple[str, str], dict[str, Any], bytes | None]:
    """A method, what to change of its good arguments, and what to write into the file it reads."""
    case = draw(st.sampled_from(sorted(METHODS)))
    chosen = draw(
        st.lists(st.sampled_from(sorted(names_of(METHODS[case]))), max_size=2, unique=True)
    )
    changes = {name: draw(POOL) for name in chosen}
    content = draw(st.none() | IN_FILES) if case == ("Recipe", "load") else None
    return case, changes, content


def check(case: tuple[tuple[str, str], dict[str, Any], bytes | None]) -> None:
    method, changes, content = case
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        made = Parts()
        try:
            if content is not None and made["Recipe"]:
                Path("recipe.json").write_bytes(content)
            call(made, method, changes)
        except CsgmcmcError as error:
            assert "\n" not in str(error), error
        except ValueError as error:
            words, names = str(error), {*SAID, *names_of(METHODS[method])}
            assert any(name in words for name in names), words
            assert not is_own(error) or "\n" not in words, words
        except Exception as error:
            called = isinstance(error, TypeError) and any(map(callable, changes.values()))
            if not called and not (is_of_the_user(changes) and is_in_the_model(error)):
                raise
        finally:
            if "DrawStore" in made:
                made["DrawStore"].close()
            os.chdir(before)


def call(made: dict[str, Any], case: tuple[str, str], changes: dict[str, Any]) -> None:
    arguments = {**good_arguments(case, made), **changes}
    for name, parameter in names_of(METHODS[case]).items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments.pop(name, None)
    found = getattr(made[case[0]], case[1])(**arguments)
    if isinstance(found, AbstractContextManager):
        with found:
            pass
    elif isinstance(found, Iterator):
        next(found, None)


def is_of_the_user(changes: dict[str, Any]) -> bool:
    """Whether it is called with a function, a model or data that a user has made."""
    called = any(callable(value) for value in changes.values())
    return called or bool(DATA_NAMES & changes.keys())


def is_in_the_model(error: Exception) -> bool:
    """Whether an error was raised by a model, a loss or another function of a user."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return "csgmcmc" not in files[-1] or any("torch/nn" in file for file in files)


def test_all_methods_are_found_and_their_good_arguments_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(METHODS) > 35
    for index, case in enumerate(sorted(METHODS)):
        (tmp_path / str(index)).mkdir()
        monkeypatch.chdir(tmp_path / str(index))
        call(Parts(), case, {})


@pytest.mark.slow
def test_fuzz_methods():
    fuzz(calls(), check, examples=1500)
