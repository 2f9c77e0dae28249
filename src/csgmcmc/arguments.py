"""Checks of arguments. Every error names the argument, its value, and the allowed range."""

import math
import operator
from typing import Any, SupportsIndex


def plain_value(value: Any) -> Any:
    """`value` with arrays and tensors in it as numbers and lists, which any file can hold."""
    to_list = getattr(value, "tolist", None)
    if callable(to_list):
        return to_list()
    if isinstance(value, dict):
        return {name: plain_value(each) for name, each in value.items()}
    return type(value)(map(plain_value, value)) if type(value) in (list, tuple) else value


def check_number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> float:
    """Return `value` as a finite float inside the bounds, or raise a `ValueError`."""
    bounds = [
        (at_least, operator.ge, "at least"),
        (above, operator.gt, "above"),
        (at_most, operator.le, "at most"),
        (below, operator.lt, "below"),
    ]
    wanted = " and ".join(f"{words} {bound:g}" for bound, _, words in bounds if bound is not None)
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{name} must be a number, got {value!r}") from error
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}")
    if any(bound is not None and not holds(number, bound) for bound, holds, _ in bounds):
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return number


def check_count(
    name: str, value: SupportsIndex | None, *, at_least: int, below: int | None = None
) -> int:
    """Return `value` as an int inside the bounds, or raise a `ValueError`."""
    try:
        count = operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError as error:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from error
    if count < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}")
    if below is not None and count >= below:
        raise ValueError(f"{name} must be below {below}, got {value!r}")
    return count


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`, or raise a `ValueError`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
