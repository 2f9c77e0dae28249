"""How well an uncertainty score separates points inside the training distribution from others.

A score, such as predictive entropy, is larger for points outside the training distribution. The
area under the ROC curve as its measure: Hendrycks & Gimpel 2017.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_auc_score

from csgmcmc.diagnostics.arrays import check_finite, check_numbers


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """Probability that a point outside scores above one inside, ties counting half."""
    known, unknown = check_finite("inside", inside, "n"), check_finite("outside", outside, "m")
    is_outside = np.repeat([0, 1], [len(known), len(unknown)])
    return float(roc_auc_score(is_outside, np.concatenate([known, unknown])))


def cumulative_distribution(values: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    """Fraction of `values` that are at most each number of `at`, in the shape of `at`.

    For the predictive entropy of points outside, lower is better (Lakshminarayanan et al. 2017).
    """
    ordered = np.sort(check_finite("values", values, "n"))
    queries = check_numbers("at", at)
    return np.asarray(np.searchsorted(ordered, queries, side="right") / len(ordered))
