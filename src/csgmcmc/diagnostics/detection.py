"""How well an uncertainty score separates points inside the training distribution from others.

A score, such as predictive entropy, is larger for points outside the training distribution. Areas
under curves as measures of it: Hendrycks & Gimpel 2017.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from csgmcmc.arguments import check_number
from csgmcmc.diagnostics.arrays import check_finite, check_numbers


def auroc(inside: ArrayLike, outside: ArrayLike) -> float:
    """Probability that a point outside scores above one inside, ties counting half."""
    return float(roc_auc_score(*_labelled_scores(inside, outside)))


def aupr(inside: ArrayLike, outside: ArrayLike) -> float:
    """Average precision of finding the points outside: sum of (recall rise) · precision.

    Points of equal score are found together. A score that says nothing has the share of points
    that are outside, not 1/2.
    """
    return float(average_precision_score(*_labelled_scores(inside, outside)))


def fpr_at(inside: ArrayLike, outside: ArrayLike, recall: float = 0.95) -> float:
    """Share of the points inside that are flagged where `recall` of those outside are.

    Flagged is what scores at least the threshold, the highest that catches at least `recall` of
    the points outside; so points inside that tie with it are flagged too. At 0.95 it is FPR95 as
    in Hendrycks et al. 2019; Liang et al. 2018 take the points inside as those to be caught.
    """
    recall = check_number("recall", recall, above=0, at_most=1)
    # By default roc_curve drops points in the middle of straight stretches: they are needed here.
    flagged_inside, flagged_outside, _ = roc_curve(
        *_labelled_scores(inside, outside), drop_intermediate=False
    )
    return float(flagged_inside[np.argmax(flagged_outside >= recall)])


def cumulative_distribution(values: ArrayLike, at: ArrayLike) -> NDArray[np.float64]:
    """Share of `values` that are at most each number of `at`, in the shape of `at`.

    Of the predictive entropy of points outside, lower is better (Lakshminarayanan et al. 2017).
    """
    ordered = np.sort(check_finite("values", values, "n"))
    queries = check_numbers("at", at)
    return np.asarray(np.searchsorted(ordered, queries, side="right") / len(ordered))


@dataclass(frozen=True)
class RiskCoverage:
    """Error among the most certain points, as more and more points are answered.

    Attributes:
        coverage: share of the points answered, 1/n to 1.
        risk: mean error of the points answered.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]

    @property
    def area(self) -> float:
        """Mean risk over the coverages, AURC."""
        return float(self.risk.mean())


def risk_coverage(uncertainty: ArrayLike, errors: ArrayLike) -> RiskCoverage:
    """Mean error of the k most certain points, for k = 1 to n (Geifman & El-Yaniv 2017).

    `errors` are 0 and 1, or any loss of each point. Points of equal uncertainty share their mean
    error: the expectation over their orders, so the order of the data does not matter.
    """
    doubts, losses = (
        check_finite("uncertainty", uncertainty, "n"),
        check_finite("errors", errors, "n"),
    )
    if doubts.shape != losses.shape:
        raise ValueError(
            f"uncertainty and errors must have one length, got {len(doubts)} and {len(losses)}"
        )
    _, group, sizes = np.unique(doubts, return_inverse=True, return_counts=True)
    shared = np.repeat(np.bincount(group, weights=losses) / sizes, sizes)
    answered = np.arange(1, len(losses) + 1)
    return RiskCoverage(answered / len(losses), np.cumsum(shared) / answered)


def _labelled_scores(inside: ArrayLike, outside: ArrayLike) -> tuple[NDArray, NDArray]:
    """Labels, 1 for outside, and the scores of all points."""
    known, unknown = check_finite("inside", inside, "n"), check_finite("outside", outside, "m")
    return np.repeat([0, 1], [len(known), len(unknown)]), np.concatenate([known, unknown])
