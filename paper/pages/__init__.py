"""A page for each experiment: a module with `page`, from results to a page.

Its name is the experiment's, with _ for -.
"""

import importlib
import pkgutil
from typing import Any

import matplotlib as mpl

from paper.report.page import INK, Page, Results

STYLE: Any = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def make_page(results: Results) -> Page:
    """The page of an experiment, from its results alone."""
    name = results["experiment"]
    wanted = name.replace("-", "_")
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
