"""How near predictions are to those of the reference, and how good they are.

Agreement and total variation as in Izmailov, Vikram, Hoffman and Wilson, "What Are Bayesian Neural
Network Posteriors Really Like?", ICML 2021.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from csgmcmc.diagnostics import accuracy, calibration_error, negative_log_likelihood
from paper.experiments.base import Record
from paper.experiments.methods import rounded
from paper.experiments.truth_data import Source


def total_variation(one: ArrayLike, other: ArrayLike) -> float:
    """Mean over points of half the L1 distance of class probabilities (points, classes)."""
    return float(np.abs(np.asarray(one) - np.asarray(other)).sum(-1).mean() / 2)


def disagreement(one: ArrayLike, other: ArrayLike) -> float:
    """Share of points at which the most probable class is another: 1 - agreement."""
    return float((np.asarray(one).argmax(-1) != np.asarray(other).argmax(-1)).mean())


def scores(predicted: Mapping[str, Any], reference: Mapping[str, Any], source: Source) -> Record:
    """Scores on test data, those on validation data that choices are made by, and outside."""
    found: Record = {}
    for part, prefix in (("test", ""), ("validation", "validation_"), ("outside", "outside_")):
        pair = np.asarray(predicted[part]), np.asarray(reference[part])
        found[f"{prefix}tv"] = rounded(total_variation(*pair))
        found[f"{prefix}disagreement"] = rounded(disagreement(*pair))
    probs, labels = np.asarray(predicted["test"]), source.test.labels.cpu().numpy()
    losses = -np.log(np.maximum(probs[np.arange(len(labels)), labels], 1e-30))
    held_out = np.asarray(predicted["validation"]), source.validation.labels.cpu().numpy()
    return {
        **found,
        "tested": len(labels),
        "error": rounded(1 - accuracy(probs, labels)),
        "nll": rounded(losses.mean()),
        "nll_error": rounded(losses.std(ddof=1) / len(losses) ** 0.5),
        "ece": rounded(calibration_error(probs, labels)),
        "validation_nll": rounded(negative_log_likelihood(*held_out)),
    }
