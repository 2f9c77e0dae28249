"""The command line: a function for each command.

Errors and warnings of this library are printed in one line; an error of a user's own code keeps its
traceback.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from typing import Annotated, Any

import typer

import csgmcmc
from csgmcmc.cli.store import inspect, report
from csgmcmc.errors import CsgmcmcError

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Cyclical stochastic-gradient MCMC for PyTorch."""
    if version:
        typer.echo(csgmcmc.__version__)
        raise typer.Exit


def in_one_line(command: Callable[..., None]) -> Callable[..., None]:
    """The command with errors in one line, and exit code 2 after one."""

    @wraps(command)
    def wrapped(**arguments: Any) -> None:
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *others: Any) -> None:
            if category.__module__.startswith("csgmcmc."):
                typer.secho(f"csgmcmc: {message}", err=True, fg="yellow")
            else:
                shown(message, category, *others)

        try:
            with warnings.catch_warnings():
                warnings.showwarning = show
                command(**arguments)
        except (CsgmcmcError, ImportError, OSError, ValueError) as error:
            *_, (innermost, _) = walk_tb(error.__traceback__)
            if not innermost.f_globals.get("__name__", "").startswith("csgmcmc."):
                raise
            message = " ".join(f"csgmcmc: {error}".splitlines())
            typer.secho(message, err=True, fg="red")
            raise typer.Exit(2) from error

    return wrapped


for command in (inspect, report):
    app.command()(in_one_line(command))
