"""Options and saved states of a sampler."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from csgmcmc.arguments import plain_value


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

    Raises a `ValueError` if it is of another kind of sampler.
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
    return {**state, "param_groups": groups}
