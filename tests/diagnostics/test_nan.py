"""Every public diagnostic refuses nan, in every argument that holds numbers."""

import inspect
from typing import Any

import numpy as np
import pytest

from csgmcmc import diagnostics

FUNCTIONS = {
    name: found
    for name in diagnostics.__all__
    if inspect.isfunction(found := getattr(diagnostics, name))
}

PROBABILITIES = [[0.7, 0.3], [0.4, 0.6], [0.2, 0.8]]
FORECAST = {"probabilities": PROBABILITIES, "labels": [0, 1, 1]}
SCORES = {"inside": [0.1, 0.2, 0.3], "outside": [0.2, 0.5]}
CHAINS = {"draws": np.random.default_rng(0).normal(size=(2, 20))}
MEMBERS = {"members": [PROBABILITIES, PROBABILITIES]}
MODES = {"draws": [[0.0, 0.1], [4.9, 5.0]], "modes": [[0.0, 0.0], [5.0, 5.0]]}
DYNAMICS = {"lr": 0.1, "num_data": 10.0, "momentum": 0.5, "temperature": 1.0, "level": 0.9}
POINTS = {"points": [[0.0, 1.0], [1.0, 1.0], [2.0, 0.5]]}

# Arguments that each function takes. A function without an entry fails the test.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "accuracy": FORECAST,
    "aupr": SCORES,
    "auroc": SCORES,
    "brier_score": FORECAST,
    "calibration_error": {**FORECAST, "bins": 3},
    "calibration_ranks": {"truths": [[0.0], [1.0]], "draws": [[[0.1], [0.2]], [[0.3], [2.0]]]},
    "configurational_temperature": {
        "weights": [[0.1, 0.2], [0.3, 0.4]],
        "gradients": [[0.1, 0.2], [0.3, 0.1]],
        "squared_gradient": 0.1,
        **DYNAMICS,
    },
    "cosine_similarities": POINTS,
    "cumulative_distribution": {"values": [0.1, 0.2], "at": [0.0, 0.15]},
    "cycles_as_chains": {"values": [0.1, 0.2, 0.3, 0.4], "cycles": [0, 0, 1, 1]},
    "disagreement": MEMBERS,
    "effective_noise": {"injected_variance": [0.1], "gradient_variance": [0.2], "lr": 0.1},
    "effective_sample_size": CHAINS,
    "error_barrier": {"errors": [0.1, 0.3, 0.2]},
    "fpr_at": {**SCORES, "recall": 0.9},
    "gradient_variance": {"gradients": [[0.1, 0.2], [0.3, 0.4]]},
    "in_mode_mass": {**MODES, "radius": 1.0},
    "kinetic_temperature": {"velocities": [0.1, -0.2], "squared_gradient": 0.1, **DYNAMICS},
    "kl_divergence": MEMBERS,
    "mcse": CHAINS,
    "mode_counts": MODES,
    "mode_coverage": {**MODES, "radius": 1.0, "more_than": 0},
    "mode_total_variation": {**MODES, "weights": [0.5, 0.5]},
    "multidimensional_scaling": {"distances": [[0.0, 1.0], [1.0, 0.0]], "dimensions": 1},
    "negative_log_likelihood": FORECAST,
    "pairwise_distances": POINTS,
    "r_hat": CHAINS,
    "rank_uniformity": {"ranks": [[0], [1]] * 10, "draws_per_repeat": 1, "bins": 2},
    "reference_ess": {"draws": [0.1, 0.4, 0.2], "mean": 0.2, "variance": 1.0, "truncate": True},
    "reliability_curve": {**FORECAST, "bins": 3},
    "risk_coverage": {"uncertainty": [0.1, 0.2], "errors": [0, 1]},
    "temperature_of_products": {"products": [0.1, 0.2], "squared_gradient": 0.1, **DYNAMICS},
    "top_k_accuracy": {**FORECAST, "k": 1},
    "within_and_between": {"matrix": [[0.0, 1.0], [2.0, 0.0]], "groups": [0, 1]},
}
CASES = [
    (name, argument)
    for name in FUNCTIONS
    for argument, value in ARGUMENTS.get(name, {}).items()
    if not isinstance(value, bool)
]


def with_nan(value: Any) -> Any:
    """The same with its last number replaced."""
    array = np.array(value, dtype=float)
    array.reshape(-1)[-1] = np.nan
    return array if array.ndim else float("nan")


def test_every_function_is_tried():
    assert set(ARGUMENTS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_arguments_are_good_ones(name):
    FUNCTIONS[name](**ARGUMENTS[name])


@pytest.mark.parametrize(("name", "argument"), CASES)
def test_nan_is_refused_by_name(name, argument):
    spoiled = {**ARGUMENTS[name], argument: with_nan(ARGUMENTS[name][argument])}
    with pytest.raises(ValueError, match=argument):
        FUNCTIONS[name](**spoiled)


def as_objects(value: Any, missing: Any) -> Any:
    """The same numbers as objects, with the last one missing."""
    array = np.array(value, dtype=object)
    array.reshape(-1)[-1] = missing
    return array


ARRAY_CASES = [
    (name, argument) for name, argument in CASES if np.ndim(ARGUMENTS[name][argument]) > 0
]


@pytest.mark.parametrize(("name", "argument"), ARRAY_CASES)
def test_nan_and_none_are_refused_among_objects_and_masked_values_everywhere(name, argument):
    value = ARGUMENTS[name][argument]
    masked = np.ma.array(np.array(value), mask=np.zeros(np.shape(value), dtype=bool))
    masked.reshape(-1)[-1] = np.ma.masked
    for wrong in (as_objects(value, np.nan), as_objects(value, None), masked):
        with pytest.raises(ValueError, match=f"^{argument} must"):
            FUNCTIONS[name](**{**ARGUMENTS[name], argument: wrong})


def test_objects_that_are_numbers_are_taken():
    numbers = [[float(value) for value in row] for row in MODES["draws"]]
    objects = np.array(numbers, dtype=object)
    assert diagnostics.mode_counts(objects, MODES["modes"]).tolist() == [1, 1]


@pytest.mark.parametrize("wrong", [["a", "b"], "ab", [[1.0], [1.0, 2.0]], [1j, 2.0], [10**400]])
def test_what_is_no_number_is_named(wrong):
    with pytest.raises(ValueError, match=r"^uncertainty must be"):
        diagnostics.risk_coverage(wrong, [0, 1])


def test_points_at_infinity_are_in_no_mode():
    with pytest.raises(ValueError, match="draws must be finite, got inf"):
        diagnostics.mode_counts([[0.0, np.inf]], MODES["modes"])
