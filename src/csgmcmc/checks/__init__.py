"""Is the run right: warnings while it samples, and verdicts on its draws afterwards."""

from typing import TYPE_CHECKING

from csgmcmc.checks.watch import Watch
from csgmcmc.lazy import lazy_attributes

if TYPE_CHECKING:
    from csgmcmc.checks.check import Check, check_draws
    from csgmcmc.checks.evaluation import Evaluation, TrainingRun
    from csgmcmc.checks.parameter_temperatures import (
        ParameterReport,
        kinetic_temperatures,
        parameter_reports,
    )
    from csgmcmc.checks.verdict import Verdict

__all__ = [
    "Check",
    "Evaluation",
    "ParameterReport",
    "TrainingRun",
    "Verdict",
    "Watch",
    "check_draws",
    "kinetic_temperatures",
    "parameter_reports",
]

__getattr__ = lazy_attributes(
    __name__,
    check=("Check", "check_draws"),
    evaluation=("Evaluation", "TrainingRun"),
    parameter_temperatures=("ParameterReport", "kinetic_temperatures", "parameter_reports"),
    verdict=("Verdict",),
)
