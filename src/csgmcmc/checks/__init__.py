"""Checks of a posterior: sampling, mixing, calibration, and the gain over one draw."""

from typing import TYPE_CHECKING

from csgmcmc.discovery import lazy_attributes

if TYPE_CHECKING:
    from csgmcmc.checks.parameter_temperatures import ParameterReport, kinetic_temperatures
    from csgmcmc.checks.posterior_check import Check, check
    from csgmcmc.checks.verdict import Verdict

__all__ = ["Check", "ParameterReport", "Verdict", "check", "kinetic_temperatures"]

__getattr__ = lazy_attributes(
    __name__,
    parameter_temperatures=("ParameterReport", "kinetic_temperatures"),
    posterior_check=("Check", "check"),
    verdict=("Verdict",),
)
