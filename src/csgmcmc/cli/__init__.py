"""The command line: one module per command, whose function has the module's name."""

from typing import Annotated

import typer

import csgmcmc
from csgmcmc.cli import inspect, report, run

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Cyclical stochastic-gradient MCMC for PyTorch."""
    if version:
        typer.echo(csgmcmc.__version__)
        raise typer.Exit


for command in (run.run, inspect.inspect, report.report):
    app.command()(command)
