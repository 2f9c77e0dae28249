"""Names of packages: found in their files, or imported on first use."""

import inspect
import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


def subclasses_in(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Every concrete, public subclass of `base` defined in a module of `package`, by name."""
    found: dict[str, type[T]] = {}
    for entry in pkgutil.iter_modules(package.__path__, prefix=package.__name__ + "."):
        for name, member in inspect.getmembers(import_module(entry.name), inspect.isclass):
            is_own = member.__module__ == entry.name and member is not base
            is_public = not name.startswith("_") and not inspect.isabstract(member)
            if is_own and is_public and issubclass(member, base):
                found[name] = member
    return dict(sorted(found.items()))


def lazy_attributes(package: str, **names: Sequence[str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package, from its submodules and the names that they define.

    They are imported on first use, because their modules are slow to import.
    """
    modules = {name: module for module, defined in names.items() for name in defined}

    def __getattr__(name: str) -> Any:  # noqa: N807  (that of a module)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{modules[name]}"), name)

    return __getattr__
