"""Checks of settings: every error names the setting, the value, and what is allowed."""

import math
from typing import Any


def check_number(name: str, value: Any) -> float:
    """Return `value` as a finite float, or raise a `ValueError`."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a number, got {value!r}") from error
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return number


def check_count(name: str, value: Any, *, at_least: int) -> int:
    """Return `value` if it is an int of at least `at_least`, or raise a `ValueError`."""
    if not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value!r}")
    return value


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`, or raise a `ValueError`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
