"""What a sampler is given: parameters, groups of them, and options as plain values."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from csgmcmc.arguments import LARGEST, check_items, plain_value, shown

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
