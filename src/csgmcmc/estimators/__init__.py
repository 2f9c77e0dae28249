"""scikit-learn estimators for tabular data, whose predictions average over sampled networks."""

from csgmcmc.estimators.classifier import BayesianMLPClassifier
from csgmcmc.estimators.regressor import BayesianMLPRegressor

__all__ = ["BayesianMLPClassifier", "BayesianMLPRegressor"]
