"""Classification of rows."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch.nn.functional import cross_entropy

from csgmcmc.estimators.base import BayesianMLP
from csgmcmc.posterior import ClassPredictive


class BayesianMLPClassifier(ClassifierMixin, BayesianMLP):
    """Classifies rows, with probabilities that are averages over sampled networks.

    Each column of the table is brought to mean 0 and standard deviation 1, then a perceptron
    follows, or your own `module`. Its weights are drawn by cyclical SG-MCMC. At `temperature=1` the
    law is their posterior given the classes, up to the errors of finite steps and of minibatches.
    The prior of a weight is N(0, prior_scale^2 / fan_in), fan_in being the number of inputs that
    its unit adds up; of biases, and all else with one dimension, N(0, prior_scale^2).

    Args:
        hidden_layer_sizes: widths of the hidden layers, or of the only one; () is a linear model.
        activation: between the layers: "relu", "silu" or "tanh".
        module: a network to sample instead of the perceptron: a `torch.nn.Module`, which is copied,
            or a function (or class) of the numbers of features and of outputs that makes one. There
            is one output, a logit, for each class. The two arguments above are not used then.
        sampler: name of the sampler, e.g. "SGHMC" or "SGLD".
        lr: step size at the start of each cycle, in units of the prior: that of a weight is lr
            times its prior's variance, so that one lr does for all widths of layers. Not for PSGLD,
            which scales steps by itself.
        temperature: 1 samples the posterior; below 1 is colder, 0 optimises.
        prior_scale: scale of the prior of the weights.
        epochs: how often a fit sees the rows; by default 20 times, and in at least 3000 steps.
        cycles: cycles of the step size; each begins with large steps, to reach another mode.
        exploration: share of a cycle that explores, at temperature 0, before draws are kept.
        draws_per_cycle: draws kept in each cycle.
        batch_size: the most rows in a minibatch; where there are fewer rows, all of them are one.
        random_state: seed of start, order and noise, or a `numpy.random.RandomState`. The same
            integer gives the same fit.
        verbose: show the progress of a fit.

    Attributes:
        classes_: the classes, in the order of the columns of `predict_proba`.
        n_features_in_: number of columns of `X`.
        feature_names_in_: their names, where `X` has them.
        scaler_: the `StandardScaler` of the columns.
        draws_: the draws, of `cycles * draws_per_cycle` networks.
        posterior_: the `csgmcmc.Posterior` of them. It takes rows that `scaler_` has transformed.
        module_: the network, with the weights of the last step.
        loss_curve_: mean loss of each epoch.
    """

    _likelihood = "categorical"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803  (scikit-learn's names)
        """Sample networks that classify the rows of `X` as `y`."""
        rows, labels = self._checked(X, y=y)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has only one class, {self.classes_[0]}: give rows of at least two classes"
            )
        return self._fit(rows, torch.from_numpy(numbers), len(self.classes_))

    def _loss(self, outputs: Any, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets)

    def predictive(self, X: ArrayLike, *, members: bool = False) -> ClassPredictive:  # noqa: N803
        """The whole prediction: entropy, mutual information and, on request, each draw's."""
        return self._predictive(X, members=members)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Probability of each of `classes_`, averaged over the draws."""
        return self.predictive(X).probs_numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each row."""
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]
