"""Regression on tabular data, with a noise variance that is sampled with the weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from csgmcmc.arguments import check_number
from csgmcmc.estimators.base import BayesianMLP
from csgmcmc.estimators.network import Module, WithNoise
from csgmcmc.posterior import NumberPredictive
from csgmcmc.samplers import Sampler
from csgmcmc.samplers import discover as samplers

Floats = NDArray[np.float64]

SHARED_NOISE = 0.5  # share of the exploration in which all outputs have one noise variance
MAX_NOISE_VARIANCE = 100.0  # that of the targets is 1: above, the weights have diverged
MIN_NOISE_VARIANCE = 1e-6
QUANTILE_BATCH_SIZE = 1024


class BayesianMLPRegressor(RegressorMixin, BayesianMLP):
    """Predicts a mean and a standard deviation for each row, averaged over sampled networks.

    Columns and targets are standardised, then a multilayer perceptron, or your own `module`,
    predicts the mean of Gaussian noise. Weights and noise variance are sampled by cyclical SG-MCMC.
    The prior of a weight is N(0, prior_scale^2). By default seven cycles go from a narrow prior to
    a wide one, and stacking weights them by how they predict the rows that each of three chains
    holds out. Each output has its own noise variance, whose logarithm has the prior N(0, 3^2).
    Noise below a thousandth of the targets' standard deviation is not resolved.

    If the noise variance is below that of the targets, step sizes of the weights are proportional
    to it, and velocities to its root. In the limit of small steps this leaves the posterior
    unchanged for SGLD, SGHMC and SGNHT; PSGLD adapts its steps itself. Exploration runs at a tenth
    of the temperature of sampling, not at 0: the joint MAP interpolates the data and drives the
    noise variance to zero.

    The arguments and attributes of `BayesianMLP`, and these:

    Attributes:
        noise_std_: standard deviation of the noise of each output, in the units of `y`.
        target_mean_: mean of `y`.
        target_scale_: standard deviation of `y`, or 1 if that is 0.
    """

    _likelihood = "gaussian"
    _exploration_temperature = 0.1  # at 1 it may stay where the noise explains everything
    _chains_together = False  # each has its own noise variance, and so its own step size
    _min_steps = 2300  # of each of the chains: then a fit of 500 rows takes four seconds
    _lr_share, _max_lr = 1.0, 0.1  # times the noise variance

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (50,),
        activation: str = "relu",
        *,
        module: Module | None = None,
        sampler: str = "SGHMC",
        lr: float | None = None,
        temperature: float | tuple[float, float] = 1.0,
        prior_scale: float | tuple[float, float] = (0.15, 3.0),
        epochs: float | None = None,
        chains: int = 3,
        cycles: int = 7,
        exploration: float = 0.5,
        draws_per_cycle: int = 8,
        batch_size: int = 128,
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
        self.target_mean_, self.target_scale_ = map(self._squeezed, (scaler.mean_, scaler.scale_))
        self._fit(rows, targets, np.zeros(len(rows), dtype=int), table.shape[1], weights)
        variances = np.average(self._variances(), axis=0, weights=self.posterior_.weights)
        self.noise_std_ = self._squeezed(self._target_scale * np.sqrt(variances))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _variances(self) -> Floats:
        """The noise variances of each draw, of shape (draws, outputs)."""
        draws = [draw.tensors()["log_variance"].exp() for draw in self.draws_]
        return torch.stack(draws).double().cpu().numpy()

    def _plausible(self) -> bool:
        few_rows = self.scaler_.n_samples_seen_ < 10  # such noise may come from the prior alone
        return few_rows or bool(self._variances().mean(0).max() <= MAX_NOISE_VARIANCE)

    def _squeezed(self, values: Floats) -> Any:
        """Drop the dimension for outputs if the targets had none."""
        found = values[..., 0] if self._squeezes else values
        return found if found.ndim else float(found)

    def _network(self, features: Tensor, outputs: int, seed: int) -> nn.Module:
        return WithNoise(super()._network(features, outputs, seed), outputs)

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
        variances = variances.clamp(min=MIN_NOISE_VARIANCE)
        losses = ((targets - means).square() / variances + variances.log()).sum(-1) / 2
        return (weights * losses).mean(-1)

    def _range_test_loss(self, outputs: Any, columns: Any) -> Tensor:
        means, _ = outputs  # step sizes are relative to a noise variance of 1
        return self._loss((means, torch.ones_like(means)), columns)

    def _groups(self, model: nn.Module) -> list[dict[str, Any]]:
        """The weights, and last the log-variances of the noise, with their own prior."""
        noise = {"params": [model.get_parameter("log_variance")], "weight_decay": 0.0}
        groups = super()._groups(model.get_submodule("network"))
        return [*groups, {**noise, "prior": noise_prior_gradient}]

    def _before_step(self, model: nn.Module, sampler: Sampler) -> Callable[[float], object]:
        """Make the step sizes of the weights proportional to the smallest noise variance.

        The curvature of the loss is inversely proportional to it, so that a constant step size
        would diverge as the noise falls. Above 1, the variance of the targets, step sizes stay
        constant: otherwise diverging weights would raise the noise, and with it the step sizes. An
        output that is learned first would make the steps too small to learn the others, so all
        outputs have the same noise variance while a cycle begins. The noise variance is itself a
        coordinate, so scaling the steps of the others by it leaves their distribution unchanged.
        """
        if samplers()[self.sampler].preconditioned:  # it adapts its steps itself
            return super()._before_step(model, sampler)
        *weights, noise = sampler.param_groups
        (log_variance,) = noise["params"]
        starts = [group["initial_lr"] for group in weights]
        # A cycle begins with the whole step size, which then falls as a cosine.
        shared_above = (math.cos(math.pi * SHARED_NOISE * self.exploration) + 1) / 2

        def before_step(lr_scale: float) -> None:
            if log_variance.numel() > 1 and lr_scale > shared_above:
                with torch.no_grad():
                    log_variance.copy_(log_variance.exp().mean().log())
            share = math.exp(min(0.0, max(log_variance.min().item(), math.log(MIN_NOISE_VARIANCE))))
            for group, start in zip(weights, starts, strict=True):
                sampler.set_lr(group, share * start)

        return before_step

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
        for rows in self._features(X).split(QUANTILE_BATCH_SIZE):
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


def noise_prior_gradient(log_variance: Tensor) -> Tensor:
    """Gradient of -log prior of the log-variance: a wide one, with std between 0.05 and 20."""
    return log_variance / 3.0**2
