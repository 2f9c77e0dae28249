"""Options, parameters and saved states of a sampler: defaults, checks and a description."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from csgmcmc.arguments import check_number, counted, plain_value, shown
from csgmcmc.shards import local_shard

MAX_SHOWN_GROUPS = 3  # in a description


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as plain Python values, which a `state_dict` can hold."""
    return {
        name: value if name in ("params", "prior") else plain_value(value)
        for name, value in options.items()
    }


def option_defaults(sampler: type[torch.optim.Optimizer]) -> dict[str, Any]:
    """Defaults of the arguments of a sampler's constructor and of those of its base classes."""
    defaults: dict[str, Any] = {}
    for kind in reversed(sampler.__mro__):
        parameters = inspect.signature(kind.__init__).parameters.values()
        defaults |= {
            each.name: each.default for each in parameters if each.default is not each.empty
        }
    return defaults


def with_defaults(sampler: torch.optim.Optimizer, state: Mapping[str, Any]) -> dict[str, Any]:
    """A `state_dict` completed with the defaults of options that are newer than it.

    Raises a `ValueError` if it is of another kind of sampler, or of parameters of other shapes.
    """
    own = type(sampler)
    kind = state.get("kind", own.__name__)  # states of 0.2.0 do not have it
    defaults = option_defaults(own)
    given = sampler.param_groups[0].keys() - {"prior"}  # a prior is code, not state
    options = [name for name in sampler.defaults if name in given]
    known = {name: defaults[name] for name in options if name in defaults}
    groups = [{**known, **group} for group in state["param_groups"]]
    if kind != own.__name__ or any(set(options) - group.keys() for group in groups):
        raise ValueError(f"state_dict is of another kind of sampler: {kind}, not {own.__name__}")
    params = [param for group in sampler.param_groups for param in group["params"]]
    for index, tensors in state["state"].items():
        param = params[index]
        for name, value in tensors.items():
            if value.shape not in (param.shape, local_shard(param).shape, ()):
                shapes = f"{tuple(value.shape)} for a parameter of shape {tuple(param.shape)}"
                raise ValueError(f"state_dict has a {name} of shape {shapes}")
    return {**state, "param_groups": groups}


def describe_groups(groups: list[dict[str, Any]]) -> str:
    """Options, without the factors of a schedule, and weights; a line for each of many groups."""
    lines: list[str] = []
    for group in groups:
        options = [
            f"{name}={_written(group.get(f'initial_{name}', value))}"
            for name, value in group.items()
            if name != "params" and not name.startswith("initial_") and value is not None
        ]
        size = sum(param.numel() for param in group["params"])
        weights = f"{counted(size, 'weight')} in {counted(len(group['params']), 'tensor')}"
        lines.append(f"{', '.join(options)}: {weights}")
    if len(lines) == 1:
        return f"({lines[0]})"
    listed = "".join(f"\n  {line}" for line in lines[:MAX_SHOWN_GROUPS])
    more = f"\n  and {counted(len(lines) - MAX_SHOWN_GROUPS, 'more group')}"
    return f" with {len(lines)} groups{listed}{more if lines[MAX_SHOWN_GROUPS:] else ''}"


def _written(option: Any) -> str:
    is_number = isinstance(option, (int, float)) and not isinstance(option, bool)
    return f"{option:g}" if is_number else shown(option)


def check_formula(**values: float) -> None:
    """Raise a `ValueError` if an argument of a stationary variance is out of its range."""
    for name, value in values.items():
        positive = name in ("curvature", "lr", "num_data")
        check_number(name, value, **({"above": 0} if positive else {"at_least": 0}))
