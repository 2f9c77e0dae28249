"""Finds samplers and schedules in their packages: a new one needs only a new file."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def subclasses_in(package: ModuleType, base: type[T]) -> dict[str, type[T]]:
    """Every concrete, public subclass of `base` defined in a module of `package`, by name."""
    found: dict[str, type[T]] = {}
    for entry in pkgutil.iter_modules(package.__path__, prefix=package.__name__ + "."):
        module = importlib.import_module(entry.name)
        for name, member in inspect.getmembers(module, inspect.isclass):
            if member.__module__ != module.__name__ or name.startswith("_"):
                continue
            if issubclass(member, base) and member is not base and not inspect.isabstract(member):
                found[name] = member
    return dict(sorted(found.items()))
