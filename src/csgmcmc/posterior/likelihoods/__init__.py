"""Likelihoods, one per file: a new one needs only a new file."""

import sys

from csgmcmc.arguments import check_choice
from csgmcmc.discovery import subclasses_in
from csgmcmc.posterior.likelihoods.base import Likelihood


def discover() -> dict[str, type[Likelihood]]:
    """Every likelihood of this package by its `name`, newly added files included."""
    found = subclasses_in(sys.modules[__name__], Likelihood)
    return {likelihood.name: likelihood for likelihood in found.values()}


def as_likelihood(likelihood: str | Likelihood) -> Likelihood:
    """A likelihood by its name, or the given one."""
    if isinstance(likelihood, Likelihood):
        return likelihood
    named = discover()
    return named[check_choice("likelihood", likelihood, tuple(named))]()
