"""Imports of optional packages, with a helpful error."""

import importlib
from types import ModuleType


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say how to install it.

    Args:
        package: the module to import, e.g. `"lightning.pytorch"`.
        extra: the extra of this library that installs it.
    """
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
