"""Names of a package that are imported on first use, because their modules are slow to import."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any


def lazy_attributes(package: str, **names: Sequence[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, from its submodules and the names that they define."""
    modules = {name: module for module, defined in names.items() for name in defined}

    def __getattr__(name: str) -> Any:  # noqa: N807  (that of a module)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return __getattr__
