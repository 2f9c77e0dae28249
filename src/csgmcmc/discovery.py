"""Names of packages: found in their files, imported on first use, or removed."""

import inspect
import pkgutil
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

REMOVED = {
    "csgmcmc.Recipe": "a sampler and a schedule",
    "csgmcmc.Task": "csgmcmc run SCRIPT:FUNCTION, with a function that returns a Chain",
    "csgmcmc.Draws": "csgmcmc.draws.Draws",
    "csgmcmc.Predictive": "csgmcmc.posterior.Predictive",
    "csgmcmc.refresh_batchnorm": "torch.optim.swa_utils.update_bn",
    "csgmcmc.tuning": "csgmcmc.suggest_lr for the step size, Optuna for a search",
    "csgmcmc.planning": "benchmarks/plan.py",
    "csgmcmc.targets": "paper/targets in the repository",
    "csgmcmc.demo": "examples/demo in the repository",
    "csgmcmc.chain": "csgmcmc.loop",
    "csgmcmc.stepper": "csgmcmc.loop",
    "csgmcmc.processes": "torchrun, or joblib",
    "csgmcmc.diagnostics.effective_noise": "Check.parameters of csgmcmc.checks.check",
    "csgmcmc.diagnostics.Temperature": "csgmcmc.diagnostics.temperature.Temperature",
    "csgmcmc.diagnostics.configurational_temperature": "temperature_of_products",
    "csgmcmc.diagnostics.gradient_variance": "gradients.var(axis=0, ddof=1)",
    "csgmcmc.diagnostics.cumulative_distribution": "scipy.stats.ecdf",
    "csgmcmc.diagnostics.aupr": "sklearn.metrics.average_precision_score",
    "csgmcmc.diagnostics.fpr_at": "sklearn.metrics.roc_curve",
}
"""Names that were removed, and what to use instead."""


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


def refuse_removed(package: str, name: str) -> NoReturn:
    """Raise the error for a name that `package` does not have, for its `__getattr__`.

    A removed name is an `ImportError`: `from package import name` would replace the message of an
    `AttributeError` by its own.
    """
    full = f"{package}.{name}"
    if full not in REMOVED:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    raise ImportError(f"{full} was removed in 0.3.0; use {REMOVED[full]} (see CHANGELOG.md)")
