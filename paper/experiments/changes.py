"""A preset with some of its settings changed by a file, such as those that a search has found.

A value replaces the settings of its name, in the config itself and in the dataclasses that it
holds. `lr` and `sampler_options` describe one cyclical method, and are translated.
"""

import json
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from paper.arguments import check_number
from paper.experiments.base import Config

C = TypeVar("C", bound=Config)
Values = Mapping[str, Any]

# The methods and the seeds of an experiment are its own; and a step size without the name of a
# method is that of the cyclical ones.
NOT_SETTINGS = ("sampler", "seed", "sampler_options", "lr")
# Runs that an experiment searches with are as long as they are for a reason.
SEARCHES = ("search", "tuned")


def read_values(path: Path) -> Values:
    """The names and values in a file that holds one JSON object."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold one JSON object")
    return found


def change(config: C, values: Values) -> tuple[C, list[str]]:
    """The config with the settings that `values` names, and the names that fit no setting."""
    values = {name: value for name, value in values.items() if value is not None}
    used: set[str] = set()
    changed = _change(config, values, used)
    return changed, [name for name in values if name not in used]


def _change(config: Any, values: Values, used: set[str]) -> Any:
    found: dict[str, Any] = {}
    for field in fields(config):
        current = getattr(config, field.name)
        if _is_nested(current):
            if not field.name.startswith(SEARCHES):
                found[field.name] = _change_nested(current, values, used)
            continue
        for name, value in _offers(field, current, values):
            found[field.name] = _converted(field.name, value, current)
            used.add(name)
    changed = replace(config, **found)
    for length in ("epochs", "steps"):
        whole, burn_in = getattr(changed, length, None), getattr(changed, "burn_in", 0)
        if whole is not None and not whole > burn_in:
            raise ValueError(f"{length}={whole} must be above burn_in={burn_in}: give both")
    return changed


def _is_nested(value: Any) -> bool:
    several = isinstance(value, tuple) and value and all(map(is_dataclass, value))
    return bool(several) or is_dataclass(value)


def _change_nested(current: Any, values: Values, used: set[str]) -> Any:
    if isinstance(current, tuple):
        return tuple(_change(one, values, used) for one in current)
    return _change(current, values, used)


def _offers(field: Field, current: Any, values: Values) -> list[tuple[str, Any]]:
    """What the file says of a setting: the name that it has there, and the value."""
    name = field.name
    if name in values and name not in NOT_SETTINGS:
        return [(name, values[name])]
    options = values.get("sampler_options")
    if isinstance(options, Mapping) and name in options:
        return [("sampler_options", options[name])]
    if "lr" in values:
        sampler = str(values.get("sampler", ""))
        if name in ("lr_cyclical", "cyclical_lr", f"lr_{sampler.lower()}"):
            return [("lr", values["lr"])]
        if name == "lrs" and f"c{sampler}" in current:
            return [("lr", {**current, f"c{sampler}": values["lr"]})]
    return []


def _converted(name: str, value: Any, current: Any) -> Any:
    """A value of a file as one of the kind that it replaces."""
    if isinstance(current, tuple) and isinstance(value, list):
        return _as_tuple(value)
    if isinstance(current, (int, float)) and isinstance(value, (str, bool)):
        raise ValueError(f"{name} must be a number, got {value!r}")  # float() would read it
    if isinstance(current, float):
        return check_number(name, value)
    if isinstance(current, int):
        number = check_number(name, value)
        if number != int(number):
            raise ValueError(f"{name} must be a whole number here, got {value!r}")
        return int(number)
    if current is not None and not isinstance(value, type(current)):
        raise ValueError(f"{name} must be a {type(current).__name__}, got {value!r}")
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
