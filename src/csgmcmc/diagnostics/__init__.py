"""Diagnostics of draws and predictions: plain arrays in, numbers out.

One rule for nan: every function refuses it, in every argument, with a `ValueError` that names the
argument. So are None among objects, and masked values. A nan in a result never comes from the data:
it says that the statistic is not defined, as R-hat of draws that are all equal, and its docstring
says when.
"""

from csgmcmc.diagnostics.calibration import (
    ReliabilityCurve,
    accuracy,
    brier_score,
    calibration_error,
    negative_log_likelihood,
    reliability_curve,
    top_k_accuracy,
)
from csgmcmc.diagnostics.calibration_by_simulation import calibration_ranks, rank_uniformity
from csgmcmc.diagnostics.detection import (
    RiskCoverage,
    aupr,
    auroc,
    cumulative_distribution,
    fpr_at,
    risk_coverage,
)
from csgmcmc.diagnostics.ess import (
    cycles_as_chains,
    effective_sample_size,
    mcse,
    r_hat,
    reference_ess,
)
from csgmcmc.diagnostics.function_space import (
    WithinAndBetween,
    disagreement,
    kl_divergence,
    within_and_between,
)
from csgmcmc.diagnostics.modes import in_mode_mass, mode_counts, mode_coverage, mode_total_variation
from csgmcmc.diagnostics.noise import EffectiveNoise, effective_noise, gradient_variance
from csgmcmc.diagnostics.temperature import (
    Temperature,
    configurational_temperature,
    kinetic_temperature,
    temperature_of_products,
)
from csgmcmc.diagnostics.weight_space import (
    cosine_similarities,
    error_barrier,
    multidimensional_scaling,
    pairwise_distances,
)

__all__ = [
    "EffectiveNoise",
    "ReliabilityCurve",
    "RiskCoverage",
    "Temperature",
    "WithinAndBetween",
    "accuracy",
    "aupr",
    "auroc",
    "brier_score",
    "calibration_error",
    "calibration_ranks",
    "configurational_temperature",
    "cosine_similarities",
    "cumulative_distribution",
    "cycles_as_chains",
    "disagreement",
    "effective_noise",
    "effective_sample_size",
    "error_barrier",
    "fpr_at",
    "gradient_variance",
    "in_mode_mass",
    "kinetic_temperature",
    "kl_divergence",
    "mcse",
    "mode_counts",
    "mode_coverage",
    "mode_total_variation",
    "multidimensional_scaling",
    "negative_log_likelihood",
    "pairwise_distances",
    "r_hat",
    "rank_uniformity",
    "reference_ess",
    "reliability_curve",
    "risk_coverage",
    "temperature_of_products",
    "top_k_accuracy",
    "within_and_between",
]
