"""scikit-learn estimators: a table of data in, calibrated predictions out."""

from csgmcmc.estimators.classifier import BayesianMLPClassifier
from csgmcmc.estimators.regressor import BayesianMLPRegressor

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor"]
