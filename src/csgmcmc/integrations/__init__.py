"""Adapters for other packages, one file each. Each is optional, and imported under its own name."""

import importlib
from types import ModuleType


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra of this library installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # If the package itself lacks a dependency, its own error is clearer.
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise
        raise ImportError(
            f"{package} is not installed, install it with: pip install 'csgmcmc[{extra}]'",
            name=package,
        ) from error
