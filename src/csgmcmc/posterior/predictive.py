"""Posterior predictive distributions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from csgmcmc.arguments import check_count, check_number, counted

Floats = NDArray[np.float64]

BISECTIONS = 60  # of an interval: the rest of it is below rounding


@dataclass(frozen=True, kw_only=True, repr=False)
class Predictive:
    """The prediction averaged over draws, and where its uncertainty comes from.

    Attributes:
        entropy: of the averaged prediction: the total uncertainty, in nats.
        expected_entropy: mean entropy of the members: the aleatoric part.
        spread: standard deviation between the members' predictions.
        members: the prediction of each draw, with a leading dimension for draws; on request.
        targets: targets of the loader, in the same order.
    """

    entropy: Tensor
    expected_entropy: Tensor
    spread: Tensor
    members: Tensor | None = None
    targets: Tensor | None = None

    if TYPE_CHECKING:
        # Which subclass it is depends on the likelihood, which a type checker does not know.
        def __getattr__(self, name: str) -> Any: ...

    @property
    def mutual_information(self) -> Tensor:
        """Between prediction and weights: the epistemic part, which more data would remove."""
        return (self.entropy - self.expected_entropy).clamp(min=0)  # against rounding

    def __repr__(self) -> str:
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: value for name, value in found.items() if isinstance(value, Tensor)}
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        return f"{type(self).__name__} of {counted(len(self.entropy), 'data point')}: {shapes}"

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The predictions of several batches, concatenated."""
        joined: dict[str, Any] = {}
        for field in fields(cls):
            values = [getattr(part, field.name) for part in parts]
            if isinstance(values[0], Tensor):
                values[0] = torch.cat(values, dim=1 if field.name == "members" else 0)
            elif isinstance(values[0], Mixture):
                parameters = [part.parameters for part in values]
                cat = {name: torch.cat([p[name] for p in parameters], 1) for name in parameters[0]}
                values[0] = replace(values[0], parameters=cat)
            joined[field.name] = values[0]
        return cls(**joined)


@dataclass(frozen=True, kw_only=True, repr=False)
class ClassPredictive(Predictive):
    """Probabilities of classes.

    Attributes:
        log_probs: log-probabilities per class; for Bernoulli, of the positive class. The
            probabilities of the members are averaged, not their logarithms.
        class_dim: dimension of the classes; None for Bernoulli.
    """

    log_probs: Tensor
    class_dim: int | None

    @property
    def probs(self) -> Tensor:
        """Averaged probabilities of the members."""
        return self.log_probs.exp()

    # Arrays for `csgmcmc.diagnostics`; every pixel or label is a point of its own.

    def probs_numpy(self) -> NDArray[np.float64]:
        """The averaged probabilities, of shape (points, classes)."""
        return self._points(self.probs)

    def member_probs_numpy(self) -> NDArray[np.float64]:
        """The probabilities of each draw, of shape (draws, points, classes)."""
        if self.members is None:
            raise ValueError("the members were not kept: predict with members=True")
        return np.stack([self._points(member) for member in self.members])

    def labels_numpy(self) -> NDArray[np.int64]:
        """The class numbers of the targets, of shape (points,)."""
        if self.targets is None:
            raise ValueError("there are no targets: predict a loader of pairs (inputs, targets)")
        targets = self.targets.cpu().numpy()
        for wrong in targets[targets != np.floor(targets)]:
            raise ValueError(f"targets must be class numbers, got {wrong:g}")
        return targets.astype(np.int64).ravel()

    def _points(self, probs: Tensor) -> NDArray[np.float64]:
        """Probabilities of shape (points, classes)."""
        if self.class_dim is None:
            probs = torch.stack([1 - probs, probs], dim=-1)
        else:
            probs = probs.movedim(self.class_dim, -1)
        return probs.reshape(-1, probs.shape[-1]).cpu().double().numpy()


@dataclass(frozen=True, eq=False)
class Mixture:
    """The distribution of a target under each draw, and the draws' weights."""

    family: str  # name of a distribution in `scipy.stats`
    weights: Floats  # of the draws, summing to 1
    parameters: dict[str, Tensor]  # of the distribution, each of shape (draws, points, ...)

    def quantiles(self, levels: Floats) -> Floats:
        """Quantiles of shape (levels, points, ...), by bisection between those of the members.

        For whole numbers it is the first that reaches the level.
        """
        weights = self.weights[self.weights > 0]
        arrays = self._arrays(np.flatnonzero(self.weights))
        members = scipy_family(self.family)(**{k: array[:, None] for k, array in arrays.items()})
        whole = hasattr(members, "pmf")
        points = next(iter(arrays.values())).ndim - 1
        wanted = levels.reshape(len(levels), *[1] * points)
        own = members.ppf(wanted)  # (members, levels, points, ...)
        low, high = own.min(axis=0), own.max(axis=0)
        low = low - 1 if whole else low
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            middle = np.floor(middle) if whole else middle
            below = np.einsum("m,ml...->l...", weights, members.cdf(middle)) < wanted
            low, high = np.where(below, middle, low), np.where(below, high, middle)
            if whole and (high - low <= 1).all():
                break
        return high if whole else (low + high) / 2

    def sample(self, count: int, seed: int | None) -> Floats:
        """Simulated targets, of shape (count, points, ...), each from a draw chosen by weight."""
        generator = np.random.default_rng(seed)
        chosen = generator.choice(len(self.weights), count, p=self.weights)
        return scipy_family(self.family)(**self._arrays(chosen)).rvs(random_state=generator)

    def _arrays(self, numbers: NDArray[np.int64]) -> dict[str, Floats]:
        """The parameters of some members."""
        return {name: p.cpu().double().numpy()[numbers] for name, p in self.parameters.items()}


@dataclass(frozen=True, kw_only=True, repr=False)
class NumberPredictive(Predictive):
    """Mean, variance and quantiles of numbers.

    The averaged prediction is a mixture of the members' distributions. Its mean and variance are
    exact; `entropy` is that of the Gaussian with the same variance, for continuous numbers an upper
    bound.

    Attributes:
        mean: of the averaged prediction.
        noise_variance: mean variance of the members: the aleatoric part.
        mixture: the members' distributions, if they were kept.
    """

    mean: Tensor
    noise_variance: Tensor
    mixture: Mixture | None = None

    @property
    def variance(self) -> Tensor:
        """Total variance: the noise, and the variance between the members' means."""
        return self.noise_variance + self.spread.square()

    def quantile(self, q: float | Sequence[float]) -> Tensor:
        """Quantile of a new target, in the shape of `mean`; several q add a first dimension.

        It is a quantile of the mixture, not of one Gaussian. Predict with `members=True`.
        """
        levels = [check_number("q", each, above=0, below=1) for each in np.atleast_1d(q).tolist()]
        found = self._of_mixture(lambda mixture: mixture.quantiles(np.array(levels)))
        return found[0] if np.ndim(q) == 0 else found

    def interval(self, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Ends of the central interval that holds a share `level` of new targets.

        Predict with `members=True`.
        """
        check_number("level", level, above=0, below=1)
        low, high = self.quantile([(1 - level) / 2, (1 + level) / 2])
        return low, high

    def sample(self, count: int, seed: int | None = None) -> Tensor:
        """Simulated new targets, of shape (count, ...), each from a draw chosen by its weight.

        All targets of one sample are from the same draw. Predict with `members=True`.
        """
        count = check_count("count", count, at_least=1)
        return self._of_mixture(lambda mixture: mixture.sample(count, seed))

    def _of_mixture(self, compute: Callable[[Mixture], NDArray[Any]]) -> Tensor:
        if self.mixture is None:
            raise ValueError("the members were not kept: predict with members=True")
        return torch.from_numpy(np.asarray(compute(self.mixture), dtype=float)).to(self.mean)


def scipy_family(name: str) -> Any:
    """A distribution of `scipy.stats`."""
    from scipy import stats  # noqa: PLC0415  (slow to import)

    return getattr(stats, name)
