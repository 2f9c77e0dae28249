"""Regression on tabular data, with a noise variance that is sampled with the weights."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from csgmcmc.arguments import check_choice, check_number
from csgmcmc.estimators.base import PREDICTION_BATCH_SIZE, BayesianMLP
from csgmcmc.estimators.ladder import Floats, gaussian_stacking
from csgmcmc.estimators.network import Module, WithNoise
from csgmcmc.posterior import NumberPredictive, Posterior

MAX_ROWS_OF_NOISE = 1000  # that `noise_std_` is the average over
NOISES = {"per row": (True,), "constant": (False,), "auto": (True, False)}


class BayesianMLPRegressor(RegressorMixin, BayesianMLP):
    """Predicts a mean and a standard deviation for each row, averaged over sampled networks.

    The noise is Gaussian. Below a thousandth of the targets' standard deviation it is not resolved.

    Args:
        noise: "per row" predicts the standard deviation of the noise from the row, "constant" has
            one for each output, and with "auto" a chain has networks of both kinds. "per row" asks
            a `module` for twice as many outputs: means, then scales before a softplus; with "auto"
            its noise is constant.

    Attributes:
        noise_std_: standard deviation of the noise of each output, in the units of `y`: the root of
            its mean square over the training rows.
        target_mean_: mean of `y`.
        target_scale_: standard deviation of `y`, or 1 if that is 0.
    """

    _likelihood = "gaussian"
    _lr, _sampling_lr = 0.02, 0.3

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] | None = None,
        activation: str = "silu",
        *,
        noise: str = "auto",
        module: Module | None = None,
        lr: float | None = None,
        temperature: float | Sequence[float] = (1.0, 1.0, 0.3, 0.1),
        prior_scale: float | Sequence[float] = (0.3, 1.5, 4.0, 8.0),
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
        """Sample networks that predict `y` from the rows of `X`.

        Args:
            X: the rows.
            y: the target of each row, or several of them, of shape (rows, outputs).
            sample_weight: weight of each row in the likelihood; N is the sum of the weights. A row
                of weight 2 counts as two rows, one of weight 0 not at all.
        """
        options = {"y_numeric": True, "multi_output": True}
        rows, values, weights = self._weighted_rows(X, y, sample_weight, **options)
        if values.dtype.kind not in "fiub":
            got = f"got {values.flat[0]!r}: for classes, use BayesianMLPClassifier"
            raise ValueError(f"y must be numbers, {got}")
        self._squeezes = values.ndim == 1
        table = values.reshape(len(values), -1).astype(float)
        scaler: Any = StandardScaler().fit(table, sample_weight=weights)
        targets = torch.from_numpy(scaler.transform(table)).float()
        self._target_mean, self._target_scale = scaler.mean_, scaler.scale_
        self.target_mean_, self.target_scale_ = (
            float(each[0]) if self._squeezes else each for each in (scaler.mean_, scaler.scale_)
        )
        noises = NOISES[check_choice("noise", self.noise, tuple(NOISES))]
        if self.module is not None and self.noise == "auto":
            noises = NOISES["constant"]
        self._fit(rows, targets, np.zeros(len(rows), dtype=int), table.shape[1], weights, noises)
        fitted = self._inputs(self._rows_to_check[0][:MAX_ROWS_OF_NOISE])
        found: Any = self.posterior_.predict_loader([fitted])
        variances = self._in_units_of_targets(found).noise_variance
        std = variances.mean(0).double().sqrt().cpu().numpy()
        self.noise_std_ = std if std.ndim else float(std)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _network(self, features: Tensor, outputs: int, per_row: bool, noisy: int = 0) -> nn.Module:
        noisy = outputs if self.module is None or per_row else noisy
        network = super()._network(features, outputs + noisy, per_row, noisy)
        return WithNoise(network, outputs, per_row=per_row)

    def _evidence(self, posterior: Posterior, rows: Tensor, targets: Tensor, count: int) -> Floats:
        """Mean and mean square of each row's targets under each member."""
        found: Any = posterior.predict_loader([rows], members=True)
        loc, scale = (found.mixture.parameters[name].cpu().numpy() for name in ("loc", "scale"))
        moments = np.stack([loc, scale**2 + loc**2], axis=2).astype(float)
        return moments.reshape(count, -1, *moments.shape[1:]).mean(1)

    def _weigh(self, evidence: Floats, targets: Tensor, points: Floats) -> tuple[Floats, float]:
        means, squares = evidence[:, :, 0], evidence[:, :, 1]
        return gaussian_stacking(means, squares, targets.double().numpy(), points)

    def _targets(self, y: ArrayLike) -> Tensor:
        values = np.asarray(y, dtype=float)
        table = values.reshape(len(values), -1)
        if table.shape[1] != len(self._target_mean):
            fitted = len(self._target_mean)
            raise ValueError(f"y has {table.shape[1]} outputs, and the fitted y had {fitted}")
        targets = torch.from_numpy((table - self._target_mean) / self._target_scale)
        return targets if self._is_perceptron else targets.float()

    def _loss(self, outputs: Any, columns: Any) -> Tensor:
        (means, variances), (targets, weights) = outputs, columns
        losses = ((targets - means).square() / variances + variances.log()).sum(-1) / 2
        return (weights * losses).mean(-1)

    def predictive(self, X: ArrayLike, *, members: bool = False) -> NumberPredictive:
        """The posterior predictive in the units of `y`, with each draw's mean if `members`."""
        return self._in_units_of_targets(self._predictive(X, members=members))

    def _in_units_of_targets(self, found: NumberPredictive) -> NumberPredictive:
        given, device = (self._target_mean, self._target_scale), found.mean.device
        mean, scale = (torch.from_numpy(each).to(device) for each in given)
        outputs = 0 if self._squeezes else slice(None)
        members, mixture = found.members, found.mixture
        if mixture is not None:
            loc, std = (mixture.parameters[name] for name in ("loc", "scale"))
            moved = {"loc": mean + scale * loc, "scale": scale * std}
            mixture = replace(mixture, parameters={k: v[..., outputs] for k, v in moved.items()})
        return replace(
            found,
            mean=(mean + scale * found.mean)[..., outputs],
            noise_variance=(scale**2 * found.noise_variance)[..., outputs],
            spread=(scale * found.spread)[..., outputs],
            entropy=(found.entropy + scale.log())[..., outputs],
            expected_entropy=(found.expected_entropy + scale.log())[..., outputs],
            members=None if members is None else (mean + scale * members)[..., outputs],
            mixture=mixture,
        )

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> Floats:
        """Quantiles of a new observation at each row, of shape (quantiles, rows[, outputs]).

        These are the quantiles of the mixture of all draws' Gaussians, not of one Gaussian.

        Args:
            X: rows, with the columns of the training data.
            quantiles: levels between 0 and 1.
        """
        levels = np.atleast_1d(np.asarray(quantiles, dtype=float)).tolist()
        parts = []
        for rows in self._features(X).split(PREDICTION_BATCH_SIZE):
            found: Any = self.posterior_.predict_loader([rows], members=True)
            parts.append(self._in_units_of_targets(found).quantile(levels))
        return torch.cat(parts, dim=1).double().cpu().numpy()

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> Floats:
        """Lower and upper ends of central intervals, of shape (2, rows[, outputs]).

        A share `level` of new observations lies between them, and as many below as above.
        """
        check_number("level", level, above=0, below=1)
        return self.predict_quantiles(X, [(1 - level) / 2, (1 + level) / 2])

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Mean of the posterior predictive for each row and, optionally, its standard deviation.

        The standard deviation is that of a new observation: noise and disagreement of the draws.

        Args:
            X: rows, with the columns of the training data.
            return_std: return a pair of means and standard deviations.
        """
        found = self.predictive(X)
        mean = found.mean.double().cpu().numpy()
        return (mean, found.variance.double().sqrt().cpu().numpy()) if return_std else mean
