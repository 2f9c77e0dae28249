"""Classification of tabular data."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor
from torch.nn.functional import cross_entropy

from csgmcmc.arguments import shown
from csgmcmc.estimators.base import BayesianMLP
from csgmcmc.estimators.ladder import SMOOTHING, Floats
from csgmcmc.posterior import ClassPredictive, Posterior
from csgmcmc.posterior.weights import log_mean, stacking_weights


class BayesianMLPClassifier(ClassifierMixin, BayesianMLP):
    """Predicts class probabilities, averaged over sampled networks.

    Args:
        class_weight: weight of each class in the likelihood, by its name; "balanced" gives all
            classes the same total weight.

    Attributes:
        classes_: the classes, in the order of the columns of `predict_proba`.
    """

    _likelihood = "categorical"

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] | None = None,
        activation: str = "silu",
        *,
        class_weight: dict[Any, float] | str | None = None,
        lr: float | None = None,
        temperature: float | Sequence[float] = (1.0, 1.0, 0.1, 0.01),
        prior_scale: float | Sequence[float] = (0.2, 1.0, 3.0, 8.0),
        epochs: float | None = None,
        chains: int = 5,
        cycles: int | None = None,
        exploration: float = 0.6,
        draws_per_cycle: int = 8,
        batch_size: int | None = None,
        max_seconds: float = 120.0,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self._store(locals())

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Sample networks that classify the rows of `X` as `y`.

        Args:
            X: the rows.
            y: the class of each row.
            sample_weight: weight of each row in the likelihood; N is the sum of the weights. A row
                of weight 2 counts as two rows, one of weight 0 not at all.
        """
        rows, labels, weights = self._weighted_rows(X, y, sample_weight)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            only = self.classes_[0]
            raise ValueError(f"y has only one class, {only}: give rows of at least two classes")
        weights = weights * compute_sample_weight(self.class_weight, labels)
        if (weights < 0).any() or not weights.any():
            got = shown(self.class_weight)
            raise ValueError(f"class_weight must be at least 0, and above 0 for a class, got {got}")
        return self._fit(rows, torch.from_numpy(numbers), numbers, len(self.classes_), weights)

    def _evidence(self, posterior: Posterior, rows: Tensor, targets: Tensor, count: int) -> Floats:
        """Log-probability of each row's class under each member."""
        scores = posterior.log_scores([(rows, targets)]).numpy()
        return log_mean(scores.reshape(count, -1, len(rows)).swapaxes(0, 1))

    def _weigh(self, evidence: Floats, targets: Tensor, points: Floats) -> tuple[Floats, float]:
        shares = stacking_weights(evidence, point_weights=points, smoothing=SMOOTHING)
        mixed = np.logaddexp.reduce(evidence + np.log(shares)[:, None])
        return shares, float(np.average(mixed, weights=points))

    def _targets(self, y: ArrayLike) -> Tensor:
        labels = column_or_1d(y)
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(f"y has the class {unknown[0]}, which was not in the fitted y")
        return torch.from_numpy(np.searchsorted(self.classes_, labels))

    def _loss(self, outputs: Any, columns: Any) -> Tensor:
        labels, weights = columns
        losses = cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none")
        return (weights * losses.view_as(weights)).mean(-1)

    def predictive(self, X: ArrayLike, *, members: bool = False) -> ClassPredictive:
        """The posterior predictive, with each draw's probabilities if `members`."""
        return self._predictive(X, members=members)

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probability of each of `classes_`, averaged over the draws."""
        return self.predictive(X).probs_numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row."""
        likeliest = self.predict_proba(X).argmax(1)  # first: it checks that this is fitted
        return self.classes_[likeliest]
