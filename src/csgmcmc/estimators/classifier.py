"""Classification of tabular data."""

from collections.abc import Mapping, Sequence
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

from csgmcmc.arguments import check_number, shown
from csgmcmc.estimators.base import BayesianMLP
from csgmcmc.estimators.network import Module
from csgmcmc.posterior import ClassPredictive


class BayesianMLPClassifier(ClassifierMixin, BayesianMLP):
    """Predicts class probabilities, averaged over sampled networks.

    Columns are standardised, then a multilayer perceptron, or your own `module`, gives the logits.
    Its weights are sampled by cyclical SG-MCMC, with the prior N(0, prior_scale^2) for each weight.
    No width of the prior is right for all tables, so by default the method finds it: six cycles go
    from a narrow prior to a wide one, a seventh samples the widest at a lower temperature, and
    stacking weighs them by the rows that each of five chains leaves out. Exploration runs at
    temperature 0. The chains of a perceptron run together, as one stack in each process.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or a single width; () is a linear model.
        activation: between the layers: "relu", "silu" or "tanh".
        class_weight: weight of each class in the likelihood, by its name; "balanced" makes all
            classes count the same.
        module: a network to sample instead of the perceptron: a `torch.nn.Module`, which is copied,
            or a function (or class) that makes one from the numbers of features and of outputs. It
            has one output, a logit, per class. `hidden_layer_sizes` and `activation` are then
            ignored, and the chains run one after another instead of together.
        sampler: name of the sampler, e.g. "SGHMC" or "SGLD".
        lr: step size at the start of each cycle, as for `torch.optim.SGD`. By default it is found
            by a range test, and lowered if the fit diverges.
        temperature: 1 samples the posterior; below 1 is a cold posterior, 0 optimises. Of a pair,
            the second number is that of a last cycle, with the widest prior.
        prior_scale: standard deviation of the prior of every weight. A pair is the narrowest and
            the widest: each cycle has another one, from narrow to wide, and the cycles are weighed
            by how well they predict rows that their chain has not seen. A single number is that of
            all cycles, which then learn from all rows and have equal weights.
        epochs: passes over the rows; by default 20, or as many as 4000 steps need.
        chains: chains, each with its own initial weights. With a pair of prior scales or of
            temperatures each leaves out its own share of the rows, at most a fifth.
        cycles: cycles of the step size; each begins with large steps, to reach another mode.
        exploration: share of a cycle that explores before draws are kept.
        draws_per_cycle: draws kept in each cycle of a chain.
        batch_size: maximum number of rows in a minibatch.
        random_state: seed of initial weights, folds, data order and noise, or a
            `numpy.random.RandomState`. The same integer gives the same fit.
        verbose: show the progress of a fit; of several processes, of the first.
        n_jobs: processes that run the chains side by side, by joblib, whose `parallel_config` works
            too: None is 1 outside of such a context, -1 is one for each core. The fit is the same
            for any number, up to rounding.

    Attributes:
        classes_: the classes, in the order of the columns of `predict_proba`.
        n_features_in_: number of columns of `X`.
        feature_names_in_: their names, where `X` has them.
        scaler_: the `StandardScaler` of the columns.
        lr_: the step size that was used.
        ladder_: prior scale and temperature of each cycle.
        cycle_weights_: weight of each cycle, all chains together; their sum is 1.
        draws_: the `chains * cycles * draws_per_cycle` draws.
        posterior_: the `csgmcmc.Posterior` of them; its inputs are rows transformed by `scaler_`.
        module_: the network with the weights of the last draw.
        loss_curve_: mean training loss of each epoch.
    """

    _likelihood = "categorical"

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (50,),
        activation: str = "relu",
        *,
        class_weight: Mapping[Any, float] | str | None = None,
        module: Module | None = None,
        sampler: str = "SGHMC",
        lr: float | None = None,
        temperature: float | tuple[float, float] = (0.3, 0.03),
        prior_scale: float | tuple[float, float] = (0.1, 1.7),
        epochs: float | None = None,
        chains: int = 5,
        cycles: int = 7,
        exploration: float = 0.5,
        draws_per_cycle: int = 8,
        batch_size: int = 128,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            hidden_layer_sizes,
            activation,
            module=module,
            sampler=sampler,
            lr=lr,
            temperature=temperature,
            prior_scale=prior_scale,
            epochs=epochs,
            chains=chains,
            cycles=cycles,
            exploration=exploration,
            draws_per_cycle=draws_per_cycle,
            batch_size=batch_size,
            random_state=random_state,
            verbose=verbose,
            n_jobs=n_jobs,
        )
        self.class_weight = class_weight

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Sample networks that classify the rows of `X` as `y`.

        Args:
            X: the rows.
            y: the class of each row.
            sample_weight: weight of each row in the likelihood; N is the sum of the weights. A row
                of weight 2 counts as two rows, one of weight 0 not at all.
        """
        rows, labels = self._checked(X, y=y)
        check_classification_targets(labels)
        weights = self._row_weights(rows, sample_weight)
        rows, labels, weights = (part[weights > 0] for part in (rows, labels, weights))
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has only one class, {self.classes_[0]}: give rows of at least two classes"
            )
        weights = weights * compute_sample_weight(_checked(self.class_weight), labels)
        if not weights.any():
            raise ValueError(f"class_weight must not be 0 for all, got {shown(self.class_weight)}")
        targets = torch.from_numpy(numbers)
        return self._fit(rows, targets, numbers, len(self.classes_), weights)

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


def _checked(class_weight: Any) -> Any:
    """Weights by class as plain numbers, or a `ValueError`."""
    if isinstance(class_weight, Mapping):
        return {
            name: check_number(f"class_weight of {shown(name)}", weight, at_least=0)
            for name, weight in class_weight.items()
        }
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return class_weight
    raise ValueError(
        "class_weight must be None, 'balanced' or a dictionary of weights by class, got "
        f"{shown(class_weight)}"
    )
