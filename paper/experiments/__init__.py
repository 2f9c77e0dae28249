"""Experiments: thin, on the public API, and the numbers they give."""

import importlib
import inspect
import pkgutil

from paper.experiments.base import Config, Experiment, Record
from paper.experiments.results import Results
from paper.experiments.runner import reproduce

__all__ = ["Config", "Experiment", "Record", "Results", "find_experiments", "reproduce"]


def find_experiments() -> dict[str, Experiment]:
    """Every experiment of the paper, by its name; a new one is found by its file."""
    found: dict[str, Experiment] = {}
    for entry in pkgutil.iter_modules(__path__, prefix=f"{__name__}."):
        for kind in vars(importlib.import_module(entry.name)).values():
            if not inspect.isclass(kind) or kind.__module__ != entry.name:
                continue
            if issubclass(kind, Experiment) and "name" in vars(kind):
                found[kind.name] = kind()
    return found
