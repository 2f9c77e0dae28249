"""Checks of arguments. Every error names the argument, its value, and what is allowed.

Whatever is accepted is returned as a plain Python value, which JSON and checkpoints can hold.
"""

import math
import operator
from typing import Any, TypeVar

T = TypeVar("T")

LARGEST = 1e30
"""Largest number that is accepted, so that what is computed of several is finite."""

LONGEST = 200  # letters of a value in a message


def check_number(
    name: str,
    value: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    largest: float = LARGEST,
) -> float:
    """Return `value` as a finite float inside the bounds, or raise a `ValueError`."""
    bounds = [
        (at_least, operator.ge, "at least"),
        (above, operator.gt, "above"),
        (at_most, operator.le, "at most"),
        (below, operator.lt, "below"),
    ]
    wanted = " and ".join(f"{words} {bound:g}" for bound, _, words in bounds if bound is not None)
    number = _as_float(value)
    if number is None:
        raise ValueError(f"{name} must be a number, got {shown(value)}")
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {shown(value)}")
    if any(bound is not None and not holds(number, bound) for bound, holds, _ in bounds):
        raise ValueError(f"{name} must be {wanted}, got {shown(value)}")
    if abs(number) > largest:
        raise ValueError(f"{name} must be at most {largest:g} in size, got {shown(value)}")
    return number


def check_real(name: str, value: Any) -> float:
    """Return `value` as a float, which may be infinite or nan, or raise a `ValueError`."""
    number = _as_float(value)
    if number is None:
        raise ValueError(f"{name} must be a number, got {shown(value)}")
    return number


def check_count(name: str, value: Any, *, at_least: int, below: int | None = None) -> int:
    """Return `value` as an int inside the bounds, or raise a `ValueError`."""
    try:
        count = operator.index(value)
    except (TypeError, ValueError, RuntimeError) as error:
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


def check_flag(name: str, value: Any) -> bool:
    """Return `value` as True or False, or raise a `ValueError`."""
    plain = plain_value(value)
    if not isinstance(plain, int) or plain not in (0, 1):
        raise ValueError(f"{name} must be True or False, got {shown(value)}")
    return bool(plain)


def check_kind(name: str, value: Any, kind: type[T] | tuple[type[T], ...], words: str) -> T:
    """Return `value` if it is a `kind`, which a message calls `words`, or raise a `ValueError`."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {words}, got {shown(value)}")
    return value


def check_function(name: str, value: Any) -> Any:
    """Return `value` if it can be called, or raise a `ValueError`."""
    if not callable(value):
        raise ValueError(f"{name} must be a function, got {shown(value)}")
    return value


def check_items(name: str, value: Any, words: str) -> list[Any]:
    """The items of a sequence, which a message calls `words`, or raise a `ValueError`."""
    message = f"{name} must be {words}, got {shown(value)}"
    if isinstance(value, (str, bytes)):
        raise ValueError(message)
    try:
        return list(value)
    except TypeError as error:
        raise ValueError(message) from error


def plain_value(value: Any) -> Any:
    """A number of any kind (numpy, torch, Decimal, ...) as a plain one; other values as they are.

    Arrays and tensors are lists. Also inside of tuples, lists and dictionaries.
    """
    if value is None or isinstance(value, (bool, str, bytes)) or type(value) in (int, float):
        return value
    if type(value) in (tuple, list):
        return type(value)(map(plain_value, value))
    if isinstance(value, dict):
        return {name: plain_value(each) for name, each in value.items()}
    if getattr(value, "ndim", 0) and hasattr(value, "tolist"):
        try:
            return value.tolist()
        except RuntimeError:  # a tensor that is sparse or has no data
            return value
    if type(value).__name__ in ("bool", "bool_") and hasattr(value, "item"):  # of numpy
        return value.item()
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        number = _as_float(value)
        return value if number is None else number


def counted(number: int, noun: str) -> str:
    """A number of things: "1 draw", "12 draws"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown(value: Any) -> str:
    """A value in a message: one line that is not too long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # of a user's own class
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _as_float(value: Any) -> float | None:
    """A real number as a float, None if it is none; text, as "0.1", and truth values are none."""
    if isinstance(value, (str, bytes, bytearray, bool)):
        return None
    try:
        if hasattr(value, "item") and hasattr(value, "dtype"):  # of torch or numpy
            if math.prod(getattr(value, "shape", ())) != 1:
                return None
            value = value.item()
        return None if isinstance(value, (str, bytes, complex, bool)) else float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        return None
