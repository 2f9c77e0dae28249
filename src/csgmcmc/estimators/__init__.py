"""scikit-learn estimators: a table of data in, predictions of sampled networks out."""

from csgmcmc.estimators.classifier import BayesianMLPClassifier
from csgmcmc.estimators.regressor import BayesianMLPRegressor

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor"]
