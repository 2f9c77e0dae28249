"""A page for each experiment: a module with `page`, from results to a page.

Its name is the experiment's, with _ for -; families of experiments share theirs, see `FAMILIES`.
"""

import importlib
import pkgutil

import matplotlib as mpl

from csgmcmc.pages import STYLE
from paper.report.page import Page, Results

FAMILIES = ("mnist", "cifar", "cifar-converged")
"""Experiments on networks: the same tables and figures of other data, on the pages deep_*."""


def make_page(results: Results) -> Page:
    """The page of an experiment, from its results alone."""
    name = results["experiment"]
    wanted = module_of(name)
    if wanted not in {module.name for module in pkgutil.iter_modules(__path__)}:
        raise ValueError(f"there is no page for the experiment {name!r}")
    module = importlib.import_module(f"{__name__}.{wanted}")
    try:
        with mpl.rc_context(STYLE):
            return module.page(results)
    except KeyError as error:
        raise ValueError(
            f"the results of {name} have no {error}, which its page shows: they are of another "
            "version, and must be made again"
        ) from error
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ValueError(
            f"the results of {name} do not fit its page ({error}): they are of another version or "
            "damaged, and must be made again"
        ) from error


def module_of(name: str) -> str:
    """The module of an experiment's page."""
    for family in sorted(FAMILIES, key=len, reverse=True):
        if name == family or name.startswith(f"{family}-"):
            return f"deep_{name.removeprefix(family).removeprefix('-') or 'table'}"
    return name.replace("-", "_")
