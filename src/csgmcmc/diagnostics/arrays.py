"""Checks of arrays that several diagnostics share."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def check_finite(name: str, values: ArrayLike, *axes: str) -> NDArray[np.float64]:
    """Return `values` as a non-empty array of finite floats with the named axes, or raise."""
    array = np.asarray(values, dtype=float)
    if array.ndim != len(axes) or array.size == 0:
        wanted = ", ".join(axes)
        raise ValueError(f"{name} must have axes ({wanted}), none empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def check_no_nan(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return `values` as an array, or raise if a number in it is nan."""
    array = np.asarray(values)
    if array.dtype.kind in "fc" and (count := int(np.isnan(array).sum())):
        raise ValueError(f"{name} must hold no nan, got {count} of them")
    return array


def check_probabilities(name: str, values: ArrayLike, *axes: str) -> NDArray[np.float64]:
    """Return `values` as an array that is at least 0 and sums to 1 over its last axis, or raise."""
    array = check_finite(name, values, *axes)
    if array.min() < 0:
        raise ValueError(f"{name} must be at least 0, got {array.min()}")
    sums = array.sum(axis=-1).ravel()
    worst = sums[np.abs(sums - 1).argmax()]
    if abs(worst - 1) > 1e-3:  # twice what rounding to half precision can do
        raise ValueError(f"{name} must sum to 1 over the classes, got a sum of {worst:.6g}")
    return array
