"""What a run was made with, as plain values that can be kept and compared."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from csgmcmc.arguments import check_kind, plain_value
from csgmcmc.errors import SettingsMismatchError


def check_same(saved: Any, current: Any, field: str = "") -> None:
    """Raise `SettingsMismatchError` that names the first field in which two configs differ."""
    if isinstance(saved, dict) and isinstance(current, dict):
        for key in dict.fromkeys([*saved, *current]):
            inner = f"{field}.{key}" if field else str(key)
            if key not in saved or key not in current:
                check_same(saved.get(key, "absent"), current.get(key, "absent"), inner)
            else:
                check_same(saved[key], current[key], inner)
    elif saved != current:
        raise SettingsMismatchError(
            f"cannot resume: {field} was {saved} when the checkpoint was made, and is {current} now"
        )


def check_settings(state: dict[str, Any], current: dict[str, Any]) -> None:
    """Raise `SettingsMismatchError` if the state of a run was made with other settings."""
    if "settings" not in state:
        raise SettingsMismatchError(
            "the checkpoint has no settings: it was made by csgmcmc 0.1 or by another program"
        )
    check_same(state["settings"], current)


def check_seed(saved: int | None, given: int | None) -> None:
    """Raise `SettingsMismatchError` if a sampler was given another seed than it resumes with."""
    if saved is not None and given not in (None, saved):
        raise SettingsMismatchError(
            f"cannot resume: seed was {saved} when the checkpoint was made, and is {given} now; "
            "without seed= the sampler goes on with that of the checkpoint"
        )


def describe_sampler(sampler: torch.optim.Optimizer) -> dict[str, Any]:
    """The kind of sampler, and the options of its groups but for what a schedule moves."""
    moving = {"params", "lr", "temperature", "weight_decay", "prior"}
    groups = {
        str(index): {
            **{name: plain_value(group[name]) for name in group if name not in moving},
            "prior": _named(group.get("prior")),
            "tensors": len(group["params"]),
        }
        for index, group in enumerate(sampler.param_groups)
    }
    return {"sampler": type(sampler).__name__, "groups": groups}


def describe_settings(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a loop adds, as plain values."""
    if settings is None:
        return {}
    return plain_value(dict(check_kind("settings", settings, Mapping, "a dictionary")))


def describe_tensors(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Shape and dtype by name; what a module has besides tensors is left out."""
    return {
        name: f"{tuple(value.shape)} {value.dtype}"
        for name, value in tensors.items()
        if isinstance(value, Tensor)
    }


def _named(prior: Any) -> str:
    """A prior as it can be compared: its numbers, or the name of its function."""
    if prior is None or isinstance(prior, Distribution):
        return str(prior)
    return getattr(prior, "__qualname__", type(prior).__name__)
