"""Classification of tabular data."""

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
    """Predicts class probabilities, averaged over sampled networks.

    Columns are standardised, then a multilayer perceptron, or your own `module`, gives the logits.
    Its weights are sampled by cyclical SG-MCMC. At `temperature=1` the stationary distribution is
    their posterior given the classes, up to the errors of finite step sizes and of minibatches. The
    prior of a weight is N(0, prior_scale^2 / fan_in), that of a bias or any other vector
    N(0, prior_scale^2). Exploration runs at temperature 0.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or a single width; () is a linear model.
        activation: between the layers: "relu", "silu" or "tanh".
        module: a network to sample instead of the perceptron: a `torch.nn.Module`, which is copied,
            or a function (or class) that makes one from the numbers of features and of outputs. It
            has one output, a logit, per class. The two arguments above are then ignored.
        sampler: name of the sampler, e.g. "SGHMC" or "SGLD".
        lr: step size at the start of each cycle, in units of the prior: the step size of a weight
            is lr times its prior variance, so that one lr suits layers of any width. PSGLD adapts
            its steps itself.
        temperature: 1 samples the posterior; below 1 is a cold posterior, 0 optimises.
        prior_scale: scale of the prior of the weights.
        epochs: passes over the rows; by default 20, or as many as 3000 steps need.
        cycles: cycles of the step size; each begins with large steps, to reach another mode.
        exploration: share of a cycle that explores before draws are kept.
        draws_per_cycle: draws kept in each cycle.
        batch_size: maximum number of rows in a minibatch.
        random_state: seed of initial weights, data order and noise, or a
            `numpy.random.RandomState`. The same integer gives the same fit.
        verbose: show the progress of a fit.

    Attributes:
        classes_: the classes, in the order of the columns of `predict_proba`.
        n_features_in_: number of columns of `X`.
        feature_names_in_: their names, where `X` has them.
        scaler_: the `StandardScaler` of the columns.
        draws_: the `cycles * draws_per_cycle` draws.
        posterior_: the `csgmcmc.Posterior` of them; its inputs are rows transformed by `scaler_`.
        module_: the network with the weights of the last step.
        loss_curve_: mean training loss of each epoch.
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
        """The posterior predictive, with each draw's probabilities if `members`."""
        return self._predictive(X, members=members)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Probability of each of `classes_`, averaged over the draws."""
        return self.predictive(X).probs_numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """The most probable class of each row."""
        likeliest = self.predict_proba(X).argmax(1)  # first: it checks that this is fitted
        return self.classes_[likeliest]
