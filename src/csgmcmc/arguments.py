"""Checks of arguments. Every error names the argument, its value, and what is allowed.

Numbers may be Python's, numpy's or tensors without dimensions. They are returned as plain Python
values, which JSON and checkpoints can hold.
"""

import math
import operator
from typing import Any, TypeVar

T = TypeVar("T")

MAX_LETTERS = 200  # of a value in a message


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
    number = check_real(name, value)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {shown(value)}")
    if any(bound is not None and not holds(number, bound) for bound, holds, _ in bounds):
        wanted = [f"{words} {bound:g}" for bound, _, words in bounds if bound is not None]
        raise ValueError(f"{name} must be {' and '.join(wanted)}, got {shown(value)}")
    return number


def check_real(name: str, value: Any) -> float:
    """Return `value` as a float, which may be infinite or nan, or raise a `ValueError`."""
    number = plain_value(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ValueError(f"{name} must be a number, got {shown(value)}")
    return float(number)


def check_count(name: str, value: Any, *, at_least: int, below: int | None = None) -> int:
    """Return `value` as an int inside the bounds, or raise a `ValueError`."""
    try:
        count = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} must be a whole number, got {shown(value)}") from error
    if count < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {shown(value)}")
    if below is not None and count >= below:
        raise ValueError(f"{name} must be below {below}, got {shown(value)}")
    return count


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`, or raise a `ValueError`."""
    if not isinstance(value, str) or value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {allowed}, got {shown(value)}")
    return value


def check_kind(name: str, value: T, kind: Any, words: str) -> T:
    """Return `value` if it is a `kind`, which a message calls `words`, or raise a `ValueError`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {words}, got {shown(value)}")
    return value


def check_items(name: str, value: Any, words: str) -> list[Any]:
    """Return the items of a sequence, which a message calls `words`, or raise a `ValueError`."""
    try:
        if not isinstance(value, (str, bytes)):
            return list(value)
    except TypeError:
        pass
    raise ValueError(f"{name} must be {words}, got {shown(value)}")


def plain_value(value: Any) -> Any:
    """Numbers of numpy and torch as Python's, arrays as lists, also inside of containers."""
    if type(value) in (tuple, list):
        return type(value)(map(plain_value, value))
    if isinstance(value, dict):
        return {name: plain_value(each) for name, each in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def counted(number: int, noun: str) -> str:
    """A number of things: "1 draw", "12 draws"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown(value: Any) -> str:
    """A value in a message, on one line of limited length."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_LETTERS else f"{text[:MAX_LETTERS]}..."
