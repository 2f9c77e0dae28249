"""Regression on tabular data, with a noise variance that is sampled with the weights."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from torch import Tensor, nn
from torch.nn.functional import gaussian_nll_loss

from csgmcmc.estimators.base import BayesianMLP
from csgmcmc.estimators.network import WithNoise
from csgmcmc.posterior import GaussianPredictive
from csgmcmc.samplers import Sampler

Floats = NDArray[np.float64]

LOG_VARIANCE_SCALE = 3.0  # of the prior of the noise: a wide one, with std between 0.05 and 20
# Noise of a larger variance (that of the targets is 1) means that the weights have diverged;
MAX_NOISE_VARIANCE = 100.0
MIN_ROWS_TO_JUDGE = 10  # with fewer rows it may come from the prior alone


class BayesianMLPRegressor(RegressorMixin, BayesianMLP):
    """Predicts a mean and a standard deviation for each row, averaged over sampled networks.

    Columns and targets are standardised, then a multilayer perceptron, or your own `module`,
    predicts the mean of Gaussian noise. Weights and noise variance are sampled by cyclical SG-MCMC.
    At `temperature=1` the stationary distribution is their posterior given the targets, up to the
    errors of finite step sizes and of minibatches. The prior of a weight is
    N(0, prior_scale^2 / fan_in), that of a bias or any other vector N(0, prior_scale^2). The
    logarithm of the noise variance has the prior N(0, 3^2). Noise below a thousandth of the
    targets' standard deviation cannot be told from none.

    Where the noise variance is below that of the targets, step sizes of the weights are
    proportional to it, and velocities to its root. In the limit of small steps this leaves the
    posterior unchanged for SGLD, SGHMC and SGNHT; PSGLD adapts its steps itself. Exploration runs
    at the temperature of sampling, not 0: the joint MAP interpolates the data and drives the noise
    variance to zero.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or a single width; () is a linear model.
        activation: between the layers: "relu", "silu" or "tanh".
        module: a network to sample instead of the perceptron: a `torch.nn.Module`, which is copied,
            or a function (or class) that makes one from the numbers of features and of outputs. It
            has one output. The two arguments above are then ignored.
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
        noise_std_: standard deviation of the noise, in the units of `y`.
        target_mean_: mean of `y`.
        target_scale_: standard deviation of `y`, 1 where that is 0.
        n_features_in_: number of columns of `X`.
        feature_names_in_: their names, where `X` has them.
        scaler_: the `StandardScaler` of the columns.
        draws_: the `cycles * draws_per_cycle` draws.
        posterior_: the `csgmcmc.Posterior` of them; its inputs are rows transformed by `scaler_`.
        module_: the network with the weights of the last step.
        loss_curve_: mean training loss of each epoch.
    """

    _likelihood = "gaussian"
    _exploration_temperature = 1.0  # as in sampling: 0 would approach the joint MAP

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803  (scikit-learn's names)
        """Sample networks that predict `y` from the rows of `X`."""
        rows, values = self._checked(X, y=y, y_numeric=True)
        if values.dtype.kind not in "fiub":
            raise ValueError(
                f"y must be numbers, got {values[0]!r}: for classes, use BayesianMLPClassifier"
            )
        self.target_mean_, scale = float(values.mean()), float(values.std())
        self.target_scale_ = scale if scale > 0 else 1.0
        targets = (values - self.target_mean_) / self.target_scale_
        self._fit(rows, torch.from_numpy(targets).float(), 1)
        variances = [draw.tensors()["log_variance"].exp().item() for draw in self.draws_]
        if np.mean(variances) > MAX_NOISE_VARIANCE and len(values) >= MIN_ROWS_TO_JUDGE:
            raise self._too_large()
        self.noise_std_ = self.target_scale_ * float(np.sqrt(np.mean(variances)))
        return self

    def _complete(self, network: nn.Module) -> nn.Module:
        return WithNoise(network)

    def _loss(self, outputs: Any, targets: Tensor) -> Tensor:
        means, variances = outputs
        return gaussian_nll_loss(means, targets, variances)

    def _groups(self, model: nn.Module, num_data: int) -> list[dict[str, Any]]:
        """The weights, and last the log-variance of the noise."""
        noise = model.get_parameter("log_variance")
        decay = 1 / (LOG_VARIANCE_SCALE**2 * num_data)
        groups = super()._groups(model.get_submodule("network"), num_data)
        return [*groups, {"params": [noise], "weight_decay": decay}]

    def _before_step(self, model: nn.Module, sampler: Sampler) -> Callable[[], object]:
        """Make the step sizes of the weights proportional to the noise variance.

        The curvature of the loss is inversely proportional to it, so that a constant step size
        would diverge as the noise falls. Above 1, the variance of the targets, step sizes stay
        constant: otherwise diverging weights would raise the noise, and that the step sizes.

        The noise variance is itself a coordinate. So scaling the steps of the other coordinates by
        it leaves the stationary distribution of SGLD unchanged. So does it for samplers with
        velocities, which `Sampler.set_lr` keeps as they are in units of their standard deviation.
        """
        if self._preconditioned:  # it adapts its steps itself
            return super()._before_step(model, sampler)
        noise = model.get_parameter("log_variance")
        *weights, _ = sampler.param_groups
        starts = [group["initial_lr"] for group in weights]

        def before_step() -> None:
            share = min(1.0, noise.exp().item())
            for group, start in zip(weights, starts, strict=True):
                sampler.set_lr(group, share * start)

        return before_step

    def predictive(self, X: ArrayLike, *, members: bool = False) -> GaussianPredictive:  # noqa: N803
        """The posterior predictive in the units of `y`, with each draw's mean if `members`."""
        found: GaussianPredictive = self._predictive(X, members=members)
        mean, scale = self.target_mean_, self.target_scale_
        return replace(
            found,
            mean=mean + scale * found.mean,
            noise_variance=scale**2 * found.noise_variance,
            spread=scale * found.spread,
            entropy=found.entropy + np.log(scale),
            expected_entropy=found.expected_entropy + np.log(scale),
            members=None if found.members is None else mean + scale * found.members,
        )

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> Floats: ...  # noqa: N803

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Floats, Floats]: ...  # noqa: N803

    def predict(
        self,
        X: ArrayLike,  # noqa: N803
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
