"""Diagnostics of draws and predictions: plain arrays in, numbers out.

Every function raises a `ValueError` that names the argument if the data contain nan. A nan in a
result means that the statistic is not defined, such as R-hat of draws that are all equal; the
docstring says when.
"""

from csgmcmc.diagnostics.calibration import (
    accuracy,
    auroc,
    brier_score,
    calibration_error,
    negative_log_likelihood,
    reliability_curve,
)
from csgmcmc.diagnostics.mixing import (
    cycles_as_chains,
    disagreement,
    effective_sample_size,
    r_hat,
    within_and_between,
)
from csgmcmc.diagnostics.temperature import temperature_of_products

__all__ = [
    "accuracy",
    "auroc",
    "brier_score",
    "calibration_error",
    "cycles_as_chains",
    "disagreement",
    "effective_sample_size",
    "negative_log_likelihood",
    "r_hat",
    "reliability_curve",
    "temperature_of_products",
    "within_and_between",
]
