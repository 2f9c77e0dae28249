"""Hyperparameters found from data: lr by a range test, the others by a search."""

from csgmcmc.tuning.range_test import SuggestedLR, suggest_lr
from csgmcmc.tuning.search import tune
from csgmcmc.tuning.study import Trial, read_trials

__all__ = ["SuggestedLR", "Trial", "read_trials", "suggest_lr", "tune"]
