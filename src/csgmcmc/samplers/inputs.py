"""What a sampler is given: parameters, groups of them, and options as plain values."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import LARGEST, check_items, check_kind, check_number, plain_value, shown
from csgmcmc.shards import local_shard

EXACT = 2**53  # whole numbers below this are exact as floats


def checked_params(params: Any) -> list[Any]:
    """Parameters or groups as a list, or a `ValueError`; their contents are checked by torch."""
    words = "parameters, as model.parameters() gives them, or a list of dictionaries of them"
    if isinstance(params, (Tensor, Mapping)):
        raise ValueError(f"params must be {words}, got {shown(params)}")
    listed = check_items("params", params, words)
    if not listed:
        raise ValueError("params is empty: give model.parameters()")
    return listed


def checked_group(group: Any) -> dict[str, Any]:
    """A group of parameters with options of its own, or a `ValueError`."""
    if not isinstance(group, dict) or "params" not in group:
        raise ValueError(
            f"a group must be a dictionary of params and their own options, got {shown(group)}"
        )
    return group


def check_real(params: Iterable[Tensor]) -> None:
    """Raise a `ValueError` for parameters that no noise can be added to."""
    for param in params:
        if param.is_complex():
            raise ValueError("params must be real: sample a complex one as its view_as_real")
        if not param.is_floating_point():
            raise ValueError(
                f"params must be floating point, got one of {param.dtype}: make it a buffer"
            )
        if param.layout != torch.strided:
            raise ValueError(f"params must be dense, got one of layout {param.layout}")


def check_groups(sampler: Any, state: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if the groups and tensors of a state_dict are not of such a sampler."""
    groups = sampler.param_groups
    options = sampler.defaults.keys() & groups[0].keys() - {"prior"}
    words = "lists of groups and a dictionary of tensors, as state_dict() has returned them"
    saved, tensors = state.get("param_groups"), state.get("state")
    if not isinstance(saved, list) or not isinstance(tensors, Mapping):
        raise ValueError(f"state_dict must hold param_groups and state, {words}")
    for group in saved:
        check_kind("each of param_groups in state_dict", group, Mapping, "a dictionary")
        if missing := options - group.keys():
            raise ValueError(
                f"state_dict is of another kind of sampler: it has no {', '.join(sorted(missing))}"
            )
    for group, own in zip(saved, groups, strict=False):  # torch compares their number
        sampler.check_options({**group, "prior": own["prior"]})
    params = [param for group in groups for param in group["params"]]
    for index, own in tensors.items():
        if not isinstance(own, Mapping) or index not in range(len(params)):
            raise ValueError(f"state_dict must hold param_groups and state, {words}")
        velocity = own.get("velocity")  # a shape of its own is a step that fails, later
        shapes = (params[index].shape, local_shard(params[index]).shape)
        if velocity is not None and getattr(velocity, "shape", None) not in shapes:
            raise ValueError(
                f"state_dict has a velocity that does not fit a parameter of shape "
                f"{tuple(params[index].shape)}: {shown(velocity)}"
            )


def checked_formula(**values: float) -> list[float]:
    """The arguments of a stationary variance as floats, or a `ValueError` that names one."""
    positive = ("curvature", "lr", "num_data")
    return [
        check_number(name, value, above=0)
        if name in positive
        else check_number(name, value, at_least=0)
        for name, value in values.items()
    ]


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as plain values: a state_dict holds nothing else."""
    return {
        name: value if name in ("params", "prior") else _plain(value)
        for name, value in options.items()
    }


def _plain(value: Any) -> Any:
    plain = plain_value(value)
    # A whole number of more than 64 bits is none that torch can compute with.
    large = type(plain) is int and LARGEST >= abs(plain) >= EXACT
    return float(plain) if large else plain
