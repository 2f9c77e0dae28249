"""Errors and warnings of the commands: one line each, and the exit code."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from csgmcmc.processes import origin_of

Script = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION",
        help="A function that returns (model, loss, data), (model, loss, data, validation) or a "
        "csgmcmc.Task. FILE.py:FUNCTION works too.",
    ),
]
"""The argument of the commands that take a user's own script."""


def fail(message: str) -> typer.Exit:
    """Print an error in one line; the exception to raise has exit code 2."""
    typer.secho(f"csgmcmc: {' '.join(message.splitlines())}", err=True, fg="red")
    return typer.Exit(2)


def is_own(error: BaseException) -> bool:
    """Whether this library raised an error, so that its message is enough.

    Errors of a user's own code are shown with a traceback.
    """
    return origin_of(error).partition(".")[0] == "csgmcmc"


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
