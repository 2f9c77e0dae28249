"""Checks of a posterior: whether it predicts, was sampled, mixes and is calibrated."""

from typing import TYPE_CHECKING

from csgmcmc.discovery import lazy_attributes

if TYPE_CHECKING:
    from csgmcmc.checks.parameter_temperatures import ParameterReport
    from csgmcmc.checks.posterior_check import Check, check
    from csgmcmc.checks.sampler_conformance import conformance
    from csgmcmc.checks.verdict import Verdict

__all__ = ["Check", "ParameterReport", "Verdict", "check", "conformance"]

__getattr__ = lazy_attributes(
    __name__,
    sampler_conformance=("conformance",),
    parameter_temperatures=("ParameterReport",),
    posterior_check=("Check", "check"),
    verdict=("Verdict",),
)
