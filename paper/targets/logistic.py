"""Bayesian logistic regression: a posterior with one mode and no closed form."""

from torch import Tensor
from torch.nn.functional import softplus

from paper.targets.base import Target


class LogisticRegression(Target):
    """Posterior of the coefficients given `features` and `labels`, with prior N(0, variance * I).

    In terms of the samplers' contract the loss is `mean_loss`, `num_data` is N, and the prior is
    `weight_decay`; then U = N * (mean loss + weight_decay / 2 * |theta|^2).

    Args:
        features: of shape (N, d); a column of ones makes an intercept.
        labels: N numbers, each 0 or 1.
        prior_variance: variance of the Gaussian prior of every coefficient.
    """

    def __init__(self, features: Tensor, labels: Tensor, prior_variance: float = 1.0) -> None:
        if labels.shape != features.shape[:1]:
            raise ValueError(
                "features must have shape (N, d) and labels (N,), got "
                f"{tuple(features.shape)} and {tuple(labels.shape)}"
            )
        if not ((labels == 0) | (labels == 1)).all():
            raise ValueError("labels must be 0 or 1")
        self.dimension = features.shape[1]
        self.features = features
        self.labels = labels.to(features.dtype)
        self.prior_variance = prior_variance

    @property
    def num_data(self) -> int:
        """Number of data points, N."""
        return len(self.features)

    @property
    def weight_decay(self) -> float:
        """The prior as the samplers' weight decay."""
        return 1 / (self.prior_variance * self.num_data)

    def mean_loss(self, points: Tensor, rows: Tensor | None = None) -> Tensor:
        """Mean negative log-likelihood at each point, over all the data or over `rows` of it."""
        features, labels = self._batch(rows)
        logits = points @ features.T
        return (softplus(logits) - labels * logits).mean(-1)

    def mean_loss_gradient(self, points: Tensor, rows: Tensor | None = None) -> Tensor:
        """Gradient of `mean_loss` at each point, in the shape of `points`."""
        features, labels = self._batch(rows)
        residuals = (points @ features.T).sigmoid() - labels
        return residuals @ features / len(features)

    def potential(self, points: Tensor) -> Tensor:
        prior = points.square().sum(-1) / (2 * self.prior_variance)
        return self.num_data * self.mean_loss(points) + prior

    def gradient(self, points: Tensor) -> Tensor:
        return self.num_data * self.mean_loss_gradient(points) + points / self.prior_variance

    def _batch(self, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        if rows is None:
            return self.features, self.labels
        return self.features[rows], self.labels[rows]
