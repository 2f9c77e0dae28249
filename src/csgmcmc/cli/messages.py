"""How commands say that something is wrong: one line, and the code that they end with."""

import typer


def missing(error: ModuleNotFoundError, extra: str = "plot") -> typer.Exit:
    """Say what to install for a package that is not there, and end with code 2."""
    return fail(f"{error.name} is missing: pip install 'csgmcmc[{extra}]'")


def fail(message: str) -> typer.Exit:
    """Say what is wrong in one line, and end with code 2."""
    typer.secho(f"csgmcmc: {message}", err=True, fg="red")
    return typer.Exit(2)
