"""Names that were removed, and what to use instead."""

from typing import NoReturn

DIRECTLY = "make the sampler and the schedule directly"
SCRIPT = "csgmcmc run SCRIPT:FUNCTION runs the Chain that the function returns"
PAPERS_DIAGNOSTICS = (
    *("error_barrier", "in_mode_mass", "mcse", "mode_coverage", "mode_total_variation"),
    *("multidimensional_scaling", "pairwise_distances", "reference_ess", "top_k_accuracy"),
)

REMOVED = {
    "csgmcmc": {
        "Recipe": DIRECTLY,
        "Task": SCRIPT,
        "Draws": "csgmcmc.draws.Draws",
        "Predictive": "csgmcmc.posterior.Predictive",
        "recipe": DIRECTLY,
        "task": SCRIPT,
        "tuning": "csgmcmc.suggest_lr for the step size, Optuna for a search",
        "planning": "benchmarks/plan.py",
        "targets": "paper/targets in the repository",
        "demo": "examples/demo in the repository",
        "chain": "csgmcmc.loop",
        "stepper": "csgmcmc.loop",
        "processes": "torchrun, or joblib",
    },
    "csgmcmc.diagnostics": {
        "EffectiveNoise": "csgmcmc.diagnostics.temperature.EffectiveNoise",
        "Temperature": "csgmcmc.diagnostics.temperature.Temperature",
        "configurational_temperature": "csgmcmc.diagnostics.temperature_of_products",
        "gradient_variance": "gradients.var(axis=0, ddof=1)",
        **dict.fromkeys(PAPERS_DIAGNOSTICS, "paper/diagnostics.py in the repository"),
        "aupr": "sklearn.metrics.average_precision_score",
        "fpr_at": "sklearn.metrics.roc_curve",
    },
}


def refuse_removed(package: str, name: str) -> NoReturn:
    """Raise the error for a name that `package` does not have, for its `__getattr__`.

    A removed name is an `ImportError`: `from package import name` would replace the message of an
    `AttributeError` by its own.
    """
    instead = REMOVED.get(package, {}).get(name)
    if instead is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    raise ImportError(
        f"{package}.{name} was removed in 0.3.0; use instead: {instead} (see docs/migration.md)"
    )
