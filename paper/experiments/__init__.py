"""Experiments: thin, on the public API, and the numbers they give."""

import sys

from csgmcmc.discovery import subclasses_in
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.runner import Results, reproduce

__all__ = ["Config", "Experiment", "Record", "Results", "find_experiments", "reproduce"]


def find_experiments() -> dict[str, Experiment]:
    """Every experiment of the paper, by its name."""
    found = subclasses_in(sys.modules[__name__], Experiment)
    return {kind.name: kind() for kind in found.values()}  # pyright: ignore[reportAbstractUsage]
