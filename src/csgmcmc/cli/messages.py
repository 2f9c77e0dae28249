"""How commands say that something is wrong: one line, and the code that they end with."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

import typer


def missing(error: ModuleNotFoundError, extra: str = "plot") -> typer.Exit:
    """Say what to install for a package that is not there, and end with code 2."""
    package = (error.name or "a package").partition(".")[0]
    return fail(f"{package} is missing: pip install 'csgmcmc[{extra}]'")


def fail(message: str) -> typer.Exit:
    """Say what is wrong in one line, and end with code 2."""
    typer.secho(f"csgmcmc: {message}", err=True, fg="red")
    return typer.Exit(2)


def is_own(error: BaseException) -> bool:
    """Whether an error was raised by this library, whose sentences say what to change.

    What a user's own code raises is told with a traceback.
    """
    *_, (innermost, _) = walk_tb(error.__traceback__)
    return innermost.f_globals.get("__name__", "").partition(".")[0] == "csgmcmc"


@contextmanager
def warnings_in_one_line() -> Iterator[None]:
    """Warnings of this library are told as its errors are, without a line of its code."""
    before = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *others: Any) -> None:
        if category.__module__.partition(".")[0] == "csgmcmc":
            typer.secho(f"csgmcmc: {message}", err=True, fg="yellow")
        else:
            before(message, category, *others)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
