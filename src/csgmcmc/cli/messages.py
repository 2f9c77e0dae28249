"""Errors and warnings of the commands: one line each, and the exit code."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import typer

from csgmcmc.errors import CsgmcmcError, SettingsMismatchError


def fail(message: str) -> typer.Exit:
    """Print an error in one line; the exception to raise has exit code 2."""
    typer.secho(f"csgmcmc: {' '.join(message.splitlines())}", err=True, fg="red")
    return typer.Exit(2)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Print errors of this library in one line; those of a user's code keep their traceback."""
    try:
        yield
    except SettingsMismatchError as error:
        raise fail(f"{error}: use another folder, or delete this one") from error
    except (CsgmcmcError, ValueError, OSError) as error:
        if not is_own(error):
            raise
        raise fail(str(error)) from error


def is_own(error: BaseException) -> bool:
    """Whether this library raised an error, so that its message is enough."""
    *_, (innermost, _) = walk_tb(error.__traceback__)
    return innermost.f_globals.get("__name__", "").partition(".")[0] == "csgmcmc"


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Show warnings of this library as its errors: one line, without a line of code."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *others: Any) -> None:
        if category.__module__.partition(".")[0] == "csgmcmc":
            typer.secho(f"csgmcmc: {message}", err=True, fg="yellow")
        else:
            before(message, category, *others)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
