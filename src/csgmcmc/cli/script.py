"""The function of a user's script, which returns a `Chain`."""

import importlib
import sys
from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from csgmcmc.loop import Chain
from csgmcmc.randomness import seeded

OFFERED = ("chain_id", "device", "draws", "layout", "seed")
"""Arguments that a function receives if it has parameters with these names."""

VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def load_function(address: str) -> Callable[..., Any]:
    """Import the function at "path/to/file.py:function" or "module:function"."""
    module_name, _, name = address.rpartition(":")
    if not module_name or not name or module_name.startswith("."):
        raise ValueError(f"{address!r} must be FILE.py:FUNCTION, for example script.py:make_chain")
    path = Path(module_name).resolve() if module_name.endswith(".py") else None
    if path is not None and not path.is_file():
        raise ValueError(f"there is no file {module_name}")
    sys.path.insert(0, str(path.parent if path else Path.cwd()))
    imported = path.stem if path else module_name
    try:
        with seeded(0):  # module-level data are the same in all processes, and when resuming
            module = importlib.import_module(imported)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{imported}.".startswith(f"{error.name}."):
            raise  # the module exists; one that it imports does not
        raise ValueError(f"there is no module {imported!r} in this folder or installed") from error
    if path is not None and Path(module.__file__ or "").resolve() != path:
        raise ValueError(f"{module_name} has the name of another module: rename the file")
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"{module_name} has no function {name!r}")
    for each in signature(function).parameters.values():
        if each.default is each.empty and each.kind not in VARIADIC and each.name not in OFFERED:
            raise ValueError(f"{address} requires {each.name}: it may take {', '.join(OFFERED)}")
    return function


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether the function has a parameter with this name."""
    return name in signature(function).parameters


def make_chain(function: Callable[..., Any], *, seed: int, **offered: Any) -> Chain:
    """Call the function with those of the offered arguments that it takes.

    The global generators are seeded, so that the initial weights are the same each time.
    """
    given = {k: value for k, value in {**offered, "seed": seed}.items() if takes(function, k)}
    with seeded(seed):
        chain = function(**given)
    if not isinstance(chain, Chain):
        raise ValueError(f"the function must return a csgmcmc.Chain, got {type(chain).__name__}")
    return chain
