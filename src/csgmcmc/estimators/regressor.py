"""Regression of rows, with noise whose variance is sampled with the weights."""

import math
from dataclasses import replace
from typing import Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from torch import Tensor, nn
from torch.nn.functional import gaussian_nll_loss

from csgmcmc.estimators.base import BayesianMLP, BeforeStep
from csgmcmc.estimators.network import WithNoise
from csgmcmc.posterior import GaussianPredictive
from csgmcmc.samplers import Sampler
from csgmcmc.schedules import Cyclical

Floats = NDArray[np.float64]

LOG_VARIANCE_SCALE = 3.0  # of the prior of the noise, which is wide: a std of 0.05 to 20
MOST_VARIANCE = 100.0  # of the noise, the targets having 1: more is that of weights that diverge,
FEWEST_ROWS = 10  # where there are so many: of fewer, the prior alone may say so


class BayesianMLPRegressor(RegressorMixin, BayesianMLP):
    """Predicts a number for each row, with a standard deviation, from sampled networks.

    Each column of the table and the targets are brought to mean 0 and standard deviation 1, then a
    perceptron follows, or your own `module`. It gives the mean of Gaussian noise, whose variance is
    one number that is sampled, too. All are drawn by cyclical SG-MCMC. At `temperature=1` the law
    is the posterior of weights and noise given the targets, up to the errors of finite steps and of
    minibatches. The prior of a weight is N(0, prior_scale^2 / fan_in), fan_in being the number of
    inputs that its unit adds up; of biases, and all else with one dimension, N(0, prior_scale^2).
    The logarithm of the noise's variance has the prior N(0, 3^2); noise below a thousandth of the
    targets' standard deviation is not told from none.

    The steps of the weights follow the variance of the noise, where that is below the targets', and
    velocities follow by its root. So the limit of small steps is the posterior for
    SGLD, SGHMC and SGNHT; PSGLD scales steps by itself. Explorations have the temperature of
    sampling, not 0: the likeliest weights and noise together are weights that fit every row and
    noise that is none.

    Args:
        hidden_layer_sizes: widths of the hidden layers, or of the only one; () is a linear model.
        activation: between the layers: "relu", "silu" or "tanh".
        module: a network to sample instead of the perceptron: a `torch.nn.Module`, which is copied,
            or a function (or class) of the numbers of features and of outputs that makes one. There
            is one output. The two arguments above are not used then.
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
        noise_std_: standard deviation of the noise, in the units of `y`.
        target_mean_: mean of `y`.
        target_scale_: standard deviation of `y`, 1 where that is 0.
        n_features_in_: number of columns of `X`.
        feature_names_in_: their names, where `X` has them.
        scaler_: the `StandardScaler` of the columns.
        draws_: the draws, of `cycles * draws_per_cycle` networks.
        posterior_: the `csgmcmc.Posterior` of them. It takes rows that `scaler_` has transformed.
        module_: the network, with the weights of the last step.
        loss_curve_: mean loss of each epoch.
    """

    _likelihood = "gaussian"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:  # noqa: N803  (scikit-learn's names)
        """Sample networks that predict `y` from the rows of `X`."""
        rows, values = self._checked(X, y=y, y_numeric=True)
        if values.dtype.kind not in "fiub":
            raise ValueError(
                f"y must be numbers, got {values[0]!r}: for classes, take the classifier"
            )
        self.target_mean_, scale = float(values.mean()), float(values.std())
        self.target_scale_ = scale if scale > 0 else 1.0
        targets = (values - self.target_mean_) / self.target_scale_
        self._fit(rows, torch.from_numpy(targets).float(), 1)
        variances = [draw.tensors()["log_variance"].exp().item() for draw in self.draws_]
        if np.mean(variances) > MOST_VARIANCE and len(values) >= FEWEST_ROWS:
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
        weights = (param for param in model.parameters() if param is not noise)
        groups = self._prior_groups(weights, num_data)
        return [*groups, {"params": [noise], "weight_decay": decay}]

    def _arrange(self, schedule: Cyclical) -> Cyclical:
        """Explore at the temperature of sampling.

        The likeliest weights and noise together are weights that fit every row and noise that is
        none, and an exploration at temperature 0 would go there.
        """
        return replace(schedule, exploration_temperature=1.0)

    def _before_step(self, model: nn.Module, sampler: Sampler) -> BeforeStep:
        """Steps of the weights by the noise.

        The weights' steps follow the variance of the noise. The less there is, the more the loss
        curves, and a step that was right at the start would diverge. Above 1, which is the variance
        of the targets, they do not follow: else weights that begin to diverge would make the noise
        grow, and that the steps.

        The variance is a coordinate of its own, so that for SGLD scaling the steps of all others by
        it leaves the law as it is. A velocity has a variance in proportion to lr. It is scaled too,
        by the root, so that in units of its own spread it does not depend on the noise, and the law
        is left as it is there as well. A sampler with a preconditioner does all this by itself.
        """
        noise = model.get_parameter("log_variance")
        *weights, _ = sampler.param_groups
        starts = [group["initial_lr"] for group in weights]
        follows = not self._preconditions()

        def before_step() -> None:
            share = min(1.0, noise.exp().item()) if follows else 1.0
            for group, start in zip(weights, starts, strict=True):
                change = share * start / group["initial_lr"]
                group["initial_lr"] = share * start
                states = [sampler.state[param] for param in group["params"]]
                for state in states if change != 1 else []:
                    if "velocity" in state:
                        state["velocity"].mul_(math.sqrt(change))

        return before_step

    def predictive(self, X: ArrayLike, *, members: bool = False) -> GaussianPredictive:  # noqa: N803
        """The whole prediction, in the units of `y`: noise, spread and, on request, each draw's."""
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
        """The mean of each row's prediction and, on request, its standard deviation.

        That is of a new observation: it has the noise in it, and what the draws disagree about.

        Args:
            X: rows, with the columns that were learned from.
            return_std: give a pair, of means and standard deviations.
        """
        found = self.predictive(X)
        mean = found.mean.double().numpy()
        return (mean, found.variance.double().sqrt().numpy()) if return_std else mean
