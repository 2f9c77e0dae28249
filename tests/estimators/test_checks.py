"""Everything that scikit-learn asks of an estimator."""

import pytest
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from csgmcmc.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from tests.estimators.small import SMALL


# One check is for arrays of other libraries, and skips itself with a warning where scipy is not
# told to take them.
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([BayesianMLPClassifier(**SMALL), BayesianMLPRegressor(**SMALL)])
def test_it_is_an_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_it_is_one_with_its_defaults(kind):
    found = check_estimator(kind(), on_skip=None)
    assert {one["status"] for one in found} <= {"passed", "skipped"}
