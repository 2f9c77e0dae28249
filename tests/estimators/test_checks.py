"""Everything that scikit-learn asks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from tests.estimators.small import SMALL

# A row of weight 2 and two rows have the same posterior, but not the same minibatches and folds:
# the draws differ. tests/estimators/test_weights.py compares the posteriors.
DIFFERENT_DRAWS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "other draws of one posterior"
    for kind in ("dense", "sparse")
}


def expected_failures(_estimator) -> dict[str, str]:
    return DIFFERENT_DRAWS


# One check is for arrays of other libraries, and skips itself with a warning where scipy is not
# told to take them.
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [BayesianMLPClassifier(**SMALL), BayesianMLPRegressor(**SMALL)],
    expected_failed_checks=expected_failures,
)
def test_estimator_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_estimator_checks_with_defaults(kind):
    """All but the number of cycles: with the default each of the many fits takes seconds."""
    found = check_estimator(kind(cycles=2), on_skip=None, expected_failed_checks=DIFFERENT_DRAWS)
    assert {one["status"] for one in found} <= {"passed", "skipped", "xfail"}
