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
DYNAMICS = {"lr": 0.1, "num_data": 10.0, "momentum": 0.5, "temperature": 1.0}

# Arguments that each function takes. A function without an entry fails the test.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "accuracy": FORECAST,
    "auroc": SCORES,
    "brier_score": FORECAST,
    "calibration_error": {**FORECAST, "bins": 3},
    "cycles_as_chains": {"values": [0.1, 0.2, 0.3, 0.4], "cycles": [0, 0, 1, 1]},
    "disagreement": MEMBERS,
    "effective_sample_size": CHAINS,
    "negative_log_likelihood": FORECAST,
    "r_hat": CHAINS,
    "reliability_curve": {**FORECAST, "bins": 3},
    "temperature_of_products": {"products": [0.1, 0.2], "squared_gradient": 0.1, **DYNAMICS},
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
