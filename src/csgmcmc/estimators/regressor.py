"""Regression on tabular data, with a noise variance that is sampled with the weights."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from csgmcmc.arguments import check_number
from csgmcmc.estimators.base import BayesianMLP
from csgmcmc.estimators.network import Module, Perceptrons, WithNoise
from csgmcmc.posterior import GaussianPredictive
from csgmcmc.posterior.mixture import Mixture
from csgmcmc.samplers import Sampler
from csgmcmc.samplers import discover as samplers

Floats = NDArray[np.float64]

TIED = 0.5  # share of the exploration in which all outputs have one noise variance
LOG_VARIANCE_SCALE = 3.0  # of the prior of the noise: a wide one, with std between 0.05 and 20
# Noise of a larger variance (that of the targets is 1) means that the weights have diverged;
MAX_NOISE_VARIANCE = 100.0
MIN_NOISE_VARIANCE = 1e-6  # below, it cannot be told from none
LOWEST_LOG_VARIANCE = math.log(MIN_NOISE_VARIANCE)
QUANTILE_BATCH_SIZE = 1024
MIN_ROWS_TO_JUDGE = 10  # with fewer rows it may come from the prior alone


class BayesianMLPRegressor(RegressorMixin, BayesianMLP):
    """Predicts a mean and a standard deviation for each row, averaged over sampled networks.

    Columns and targets are standardised, then a multilayer perceptron, or your own `module`,
    predicts the mean of Gaussian noise. Weights and noise variance are sampled by cyclical SG-MCMC.
    At `temperature=1` the stationary distribution is their posterior given the targets, up to the
    errors of finite step sizes and of minibatches. The prior of a weight is N(0, prior_scale^2). By
    default seven cycles go from a narrow prior to a wide one, and stacking weighs them by the rows
    that each of three chains leaves out. The logarithm of the noise variance, of which each output
    has its own, has the prior N(0, 3^2). Noise below a thousandth of the targets' standard
    deviation cannot be told from none.

    Where the noise variance is below that of the targets, step sizes of the weights are
    proportional to it, and velocities to its root. In the limit of small steps this leaves the
    posterior unchanged for SGLD, SGHMC and SGNHT; PSGLD adapts its steps itself. Exploration runs
    at a tenth of the temperature of sampling, not at 0: the joint MAP interpolates the data and
    drives the noise variance to zero.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or a single width; () is a linear model.
        activation: between the layers: "relu", "silu" or "tanh".
        module: a network to sample instead of the perceptron: a `torch.nn.Module`, which is copied,
            or a function (or class) that makes one from the numbers of features and of outputs. It
            has one output for each target. `hidden_layer_sizes` and `activation` are then
            ignored.
        sampler: name of the sampler, e.g. "SGHMC" or "SGLD".
        lr: step size at the start of each cycle, as for `torch.optim.SGD`. By default it is found
            by a range test, and lowered if the fit diverges.
        temperature: 1 samples the posterior; below 1 is a cold posterior, 0 optimises. Of a pair,
            the second number is that of a last cycle, with the widest prior.
        prior_scale: standard deviation of the prior of every weight. A pair is the narrowest and
            the widest: each cycle has another one, from narrow to wide, and the cycles are weighed
            by how well they predict rows that their chain has not seen. A single number is that of
            all cycles, which then learn from all rows and have equal weights.
        epochs: passes over the rows; by default 20, or as many as 2300 steps need.
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
        noise_std_: standard deviation of the noise, in the units of `y`, of each output.
        target_mean_: mean of `y`.
        target_scale_: standard deviation of `y`, 1 where that is 0.
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

    _likelihood = "gaussian"
    # At temperature 0, exploration would approach the joint MAP, which interpolates the rows and
    # drives the noise to zero; at that of sampling it may stay where the noise explains everything.
    _exploration_temperature = 0.1
    _chains_together = False  # each has its own noise variance, and so its own step size
    _min_steps = 2300  # of each of the chains: then a fit of 500 rows takes four seconds
    _lr_share, _most_lr = 1.0, 0.1  # times the noise variance

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

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Sample networks that predict `y` from the rows of `X`.

        Args:
            X: the rows.
            y: the target of each row, or several of them, of shape (rows, outputs).
            sample_weight: weight of each row in the likelihood; N is the sum of the weights. A row
                of weight 2 counts as two rows, one of weight 0 not at all.
        """
        rows, values = self._checked(X, y=y, y_numeric=True, multi_output=True)
        if values.dtype.kind not in "fiub":
            raise ValueError(
                f"y must be numbers, got {values.flat[0]!r}: for classes, use BayesianMLPClassifier"
            )
        weights = self._row_weights(rows, sample_weight)
        rows, values, weights = (part[weights > 0] for part in (rows, values, weights))
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
        few_rows = self.scaler_.n_samples_seen_ < MIN_ROWS_TO_JUDGE
        return few_rows or bool(self._variances().mean(0).max() <= MAX_NOISE_VARIANCE)

    def _squeezed(self, values: Floats) -> Any:
        """Without the dimension for outputs, if the targets had none."""
        found = values[..., 0] if self._squeezes else values
        return found if found.ndim else float(found)

    def _complete(self, network: nn.Module, outputs: int) -> nn.Module:
        return WithNoise(network, outputs)

    def _targets(self, y: ArrayLike) -> Tensor:
        values = np.asarray(y, dtype=float)
        table = values.reshape(len(values), -1)
        if table.shape[1] != len(self._target_mean):
            raise ValueError(
                f"y has {table.shape[1]} outputs, and the fitted y had {len(self._target_mean)}"
            )
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
        inner = model.inner if isinstance(model, Perceptrons) else model
        noise = inner.get_parameter("log_variance")
        own_prior = {"weight_decay": 0.0, "prior": noise_prior_gradient}
        groups = super()._groups(inner.get_submodule("network"))
        return [*groups, {"params": [noise], **own_prior}]

    def _before_step(self, model: nn.Module, sampler: Sampler) -> Callable[[float], object]:
        """Make the step sizes of the weights proportional to the noise variance.

        With several outputs, to the smallest of theirs. So an output that is learned first would
        make the steps too small for the others to be learned at all: while a cycle begins, all
        outputs have the same noise variance.

        The curvature of the loss is inversely proportional to it, so that a constant step size
        would diverge as the noise falls. Above 1, the variance of the targets, step sizes stay
        constant: otherwise diverging weights would raise the noise, and that the step sizes.

        The noise variance is itself a coordinate. So scaling the steps of the other coordinates by
        it leaves the stationary distribution of SGLD unchanged. So does it for samplers with
        velocities, which `Sampler.set_lr` keeps as they are in units of their standard deviation.
        """
        if samplers()[self.sampler].preconditioned:  # it adapts its steps itself
            return super()._before_step(model, sampler)
        *weights, noise = sampler.param_groups
        (log_variance,) = noise["params"]
        starts = [group["initial_lr"] for group in weights]
        # A cycle begins with the whole step size, which then falls as a cosine.
        tied_above = (math.cos(math.pi * TIED * self.exploration) + 1) / 2

        def before_step(lr_scale: float) -> None:
            if log_variance.numel() > 1 and lr_scale > tied_above:
                with torch.no_grad():
                    log_variance.copy_(log_variance.exp().mean().log())
            share = math.exp(min(0.0, max(log_variance.min().item(), LOWEST_LOG_VARIANCE)))
            for group, start in zip(weights, starts, strict=True):
                sampler.set_lr(group, share * start)

        return before_step

    def predictive(self, X: ArrayLike, *, members: bool = False) -> GaussianPredictive:
        """The posterior predictive in the units of `y`, with each draw's mean if `members`."""
        found: GaussianPredictive = self._predictive(X, members=members)
        mean, scale = map(torch.from_numpy, (self._target_mean, self._target_scale))
        outputs = slice(None) if not self._squeezes else 0
        return replace(
            found,
            mean=(mean + scale * found.mean)[..., outputs],
            noise_variance=(scale**2 * found.noise_variance)[..., outputs],
            spread=(scale * found.spread)[..., outputs],
            entropy=(found.entropy + scale.log())[..., outputs],
            expected_entropy=(found.expected_entropy + scale.log())[..., outputs],
            members=None if found.members is None else (mean + scale * found.members)[..., outputs],
            mixture=self._in_units_of_targets(found.mixture),
        )

    def _in_units_of_targets(self, mixture: Mixture | None) -> Mixture | None:
        if mixture is None:
            return None
        mean, scale = map(torch.from_numpy, (self._target_mean, self._target_scale))
        outputs = slice(None) if not self._squeezes else 0
        loc, std = (mixture.parameters[name] for name in ("loc", "scale"))
        moved = {"loc": (mean + scale * loc)[..., outputs], "scale": (scale * std)[..., outputs]}
        return replace(mixture, parameters=moved)

    def predict_quantiles(self, X: ArrayLike, quantiles: ArrayLike) -> Floats:
        """Quantiles of a new observation at each row, of shape (quantiles, rows[, outputs]).

        They are those of the average of all draws' Gaussians, not of one Gaussian.

        Args:
            X: rows, with the columns of the training data.
            quantiles: levels between 0 and 1.
        """
        levels = np.atleast_1d(np.asarray(quantiles, dtype=float))
        if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles must be between 0 and 1, got {quantiles!r}")
        parts = []
        check_is_fitted(self, "posterior_")
        counting = np.flatnonzero(self.posterior_.weights).tolist()
        with torch.inference_mode():
            for rows in self._features(X).split(QUANTILE_BATCH_SIZE):
                found = list(self.posterior_.members.outputs([rows], counting))
                means = torch.cat([outputs[0] for _, _, outputs in found])
                variances = torch.cat([outputs[1] for _, _, outputs in found])
                numbers = [number for some, _, _ in found for number in some]
                weights = self.posterior_.weights[numbers]
                members = {"loc": means, "scale": variances.sqrt()}
                parts.append(Mixture("norm", weights, members).quantiles(levels))
        standard = np.concatenate(parts, axis=1)
        return self._squeezed(self._target_mean + self._target_scale * standard)

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> Floats:
        """Lower and upper end, of shape (2, rows[, outputs]), that hold a new observation.

        A share `level` of new observations lies between them, and as many below as above.
        """
        check_number("level", level, above=0, below=1)
        return self.predict_quantiles(X, [(1 - level) / 2, (1 + level) / 2])

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
    ) -> Floats | tuple[Floats, Floats]:
        """Mean of the posterior predictive for each row and, on request, its standard deviation.

        The standard deviation is that of a new observation: noise and disagreement of the draws.

        Args:
            X: rows, with the columns of the training data.
            return_std: return a pair of means and standard deviations.
        """
        found = self.predictive(X)
        mean = found.mean.double().numpy()
        return (mean, found.variance.double().sqrt().numpy()) if return_std else mean


def noise_prior_gradient(log_variance: Tensor) -> Tensor:
    """Gradient of -log prior of the log-variance of the noise."""
    return log_variance / LOG_VARIANCE_SCALE**2
