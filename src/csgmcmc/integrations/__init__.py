"""Adapters for other packages, one file each. Each is optional, and imported under its own name."""

import importlib
from types import ModuleType


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra of this library installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:  # which says what is missing, if not the package itself
        raise ImportError(
            f"{package} cannot be imported, install it with: pip install 'csgmcmc[{extra}]'",
            name=package,
        ) from error
