"""Checks of arrays that several diagnostics share."""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from csgmcmc.arguments import shown


def check_finite(name: str, values: ArrayLike, *axes: str) -> NDArray[np.float64]:
    """Return `values` as a non-empty array of finite floats with the named axes, or raise."""
    array = _as_floats(name, values)
    if array.ndim != len(axes) or array.size == 0:
        wanted = ", ".join(axes)
        raise ValueError(f"{name} must have axes ({wanted}), none empty, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def check_numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return `values` as an array of floats, or raise if one of them is nan or no number."""
    return check_no_nan(name, _as_floats(name, values))


def check_no_nan(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return `values` as an array, or raise if one of them is nan, or missing: None or masked."""
    array = _as_array(name, values)
    absent = np.zeros(array.shape, dtype=bool)
    if array.dtype.kind in "fcmM":
        absent = np.isnan(array)
    elif array.dtype.kind == "O":
        absent = np.array([_is_missing(value) for value in array.flat], dtype=bool)
    if count := int(absent.sum()):
        raise ValueError(f"{name} must hold no nan, got {count} of them")
    return array


def _as_floats(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """`values` as floats; None among objects is nan."""
    array = _as_array(name, values)
    if array.dtype.kind in "biufO":  # text, dates and complex numbers are none of these
        with suppress(TypeError, ValueError, OverflowError):
            return array.astype(float)
    raise ValueError(f"{name} must be numbers, got {shown(values)}")


def _as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    if np.ma.is_masked(values):  # an array without its mask would have other numbers there
        raise ValueError(f"{name} must hold no masked value: fill it, or leave it out")
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be an array of numbers, got {shown(values)}") from error


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)  # noqa: PLR0124  (true of nan alone)
    except (TypeError, ValueError):  # the NA of pandas is neither equal nor different
        return True


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
