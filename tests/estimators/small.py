"""Estimators that fit in a moment, and tables for them."""

from typing import Any

from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

SMALL: dict[str, Any] = {
    "hidden_layer_sizes": (8,),
    "epochs": 40,
    "batch_size": 16,
    "chains": 2,
    "cycles": 2,
    "draws_per_cycle": 2,
    "prior_scale": (0.5, 2.0),
    "temperature": 1.0,
    "random_state": 0,
}

Table = tuple[Any, Any]
"""Features and targets; scikit-learn's own types leave open which of its forms it returns."""


def iris() -> Table:
    features, classes = load_iris(return_X_y=True)
    return features, classes


def breast_cancer() -> Table:
    features, classes = load_breast_cancer(return_X_y=True)
    return features, classes


def diabetes() -> Table:
    """Its first 150 rows."""
    features, targets = load_diabetes(return_X_y=True)
    return features[:150], targets[:150]
