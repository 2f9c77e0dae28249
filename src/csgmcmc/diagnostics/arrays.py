"""Checks of arrays that several diagnostics share."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def on_cpu(values: Any) -> Any:
    """A tensor as numpy takes it, whatever its device; anything else as it is."""
    return values.detach().cpu() if hasattr(values, "detach") else values


def check_numbers(name: str, values: ArrayLike, *axes: str) -> NDArray[np.float64]:
    """Return `values` as an array of floats, or raise if one of them is nan.

    With `axes`, also raise if it is empty or does not have these.
    """
    array = np.asarray(on_cpu(values), dtype=float)
    if count := int(np.isnan(array).sum()):
        raise ValueError(f"{name} must not contain nan, got {count} of them")
    if axes and (array.ndim != len(axes) or array.size == 0):
        wanted = ", ".join(axes)
        raise ValueError(f"{name} must have axes ({wanted}), none empty, got shape {array.shape}")
    return array


def check_probabilities(name: str, values: ArrayLike, *axes: str) -> NDArray[np.float64]:
    """Return `values` as an array that is at least 0 and sums to 1 over its last axis, or raise."""
    array = check_numbers(name, values, *axes)
    if array.min() < 0:
        raise ValueError(f"{name} must be at least 0, got {array.min()}")
    sums = array.sum(axis=-1).ravel()
    worst = sums[np.abs(sums - 1).argmax()]
    if abs(worst - 1) > 1e-3:  # twice the error of rounding to half precision
        raise ValueError(f"{name} must sum to 1 over the classes, got a sum of {worst:.6g}")
    return array
