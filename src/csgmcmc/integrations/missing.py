"""What to say when an optional package is not installed."""

import importlib
from types import ModuleType


def require(package: str, extra: str) -> ModuleType:
    """Import an optional package, or say how to install it.

    Args:
        package: What to import, `"lightning.pytorch"` for example.
        extra: The extra of this library that installs it.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # A package that is there, but misses something itself, says so better than we could.
        if error.name is None or not f"{package}.".startswith(f"{error.name}."):
            raise
        raise ImportError(
            f"{package} is not installed, install it with: pip install 'csgmcmc[{extra}]'",
            name=package,
        ) from error
