"""Likelihoods of numbers: regression, with robust noise too, and counts."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from csgmcmc.arguments import check_number, shown
from csgmcmc.devices import has_numbers
from csgmcmc.posterior.averages import Average, NumberAverage
from csgmcmc.posterior.likelihoods import Likelihood, at_least_float32, in_shape, per_point


class NumberLikelihood(Likelihood):
    """A distribution of numbers, one of the families of `scipy.stats`.

    Outputs are one tensor, or a pair of them where the model learns a second parameter. Targets
    have the shape of the (first) output; those of shape (batch,) fit outputs of (batch, 1), too.
    """

    family: ClassVar[str]
    """Name of the distribution in `scipy.stats`."""

    @abstractmethod
    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        """Arguments of the distribution in `scipy.stats`, of shape (draws, batch, ...)."""

    @abstractmethod
    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        """Of the target, of shape (draws, batch, ...)."""

    @abstractmethod
    def cumulative(self, outputs: Any, targets: Tensor) -> Tensor:
        """Cumulative probability at each target, under each draw.

        Of whole numbers it is a random one between those below and at the target, the same for all
        draws: so it is uniform if the forecast is right.
        """

    def average(self) -> Average:
        return NumberAverage(self.mean_and_variance, self.family, self.parameters)


class Gaussian(NumberLikelihood):
    """Regression with Gaussian noise, of one output or of several that are independent.

    Outputs are means, or tuples of mean and variance as for `gaussian_nll_loss`: a model that
    learns its noise returns both, not one tensor of two columns. Targets have the shape of the
    means; those of shape (batch,) fit means of (batch, 1), too.

    Args:
        variance: variance of the noise, if the model returns only means.
    """

    family = "norm"

    def __init__(self, variance: float | Tensor | None = None) -> None:
        if variance is not None and not isinstance(variance, Tensor):
            variance = check_number("variance", variance, above=0)
        elif variance is not None:
            real = variance.is_floating_point() and has_numbers(variance)
            if not real or not (variance.isfinite() & (variance > 0)).all():
                raise ValueError(f"variance must be above 0 and finite, got {shown(variance)}")
        self.variance = variance

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        mean, variance = self.mean_and_variance(outputs)
        wanted = in_shape(targets, mean.shape[1:], f"means of shape {tuple(mean.shape[1:])}")
        squares = (wanted - mean).square() / variance
        return per_point(-0.5 * (squares + variance.log() + math.log(2 * math.pi)))

    def cumulative(self, outputs: Any, targets: Tensor) -> Tensor:
        """Cumulative probability at each target, under each draw."""
        mean, variance = self.mean_and_variance(outputs)
        wanted = in_shape(targets, mean.shape[1:], f"means of shape {tuple(mean.shape[1:])}")
        return torch.special.ndtr((wanted - mean).double() / variance.double().sqrt())

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        mean, variance = self.mean_and_variance(outputs)
        return {"loc": mean, "scale": variance.sqrt()}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        return one_or_two(outputs, self.variance, "variance", "likelihood=Gaussian(variance=...)")


class StudentT(NumberLikelihood):
    """Regression with noise of Student's t distribution, which outliers do not dominate.

    Outputs are locations, or pairs (tuples) of location and scale.

    Args:
        df: degrees of freedom, above 2, so that the noise has a variance.
        scale: of the noise, if the model returns only locations.
    """

    family = "t"

    def __init__(self, df: float = 4.0, scale: float | None = None) -> None:
        self.df = check_number("df", df, above=2)
        self.scale = None if scale is None else check_number("scale", scale, above=0)

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        found = self.parameters(outputs)
        wanted = in_shape(targets, found["loc"].shape[1:], "the locations").to(found["loc"])
        noise = torch.distributions.StudentT(found["df"], found["loc"], found["scale"])
        return per_point(noise.log_prob(wanted))

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        location, scale = one_or_two(outputs, self.scale, "scale", "likelihood=StudentT(scale=...)")
        return {"df": torch.full_like(location, self.df), "loc": location, "scale": scale}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        location, scale = one_or_two(outputs, self.scale, "scale", "likelihood=StudentT(scale=...)")
        return location, scale.square() * (self.df / (self.df - 2))

    def cumulative(self, outputs: Any, targets: Tensor) -> Tensor:
        return _cumulative(self.family, self.parameters(outputs), targets)


class Poisson(NumberLikelihood):
    """Counts; outputs are logarithms of the rate, as for `poisson_nll_loss`."""

    family = "poisson"

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        log_rate = at_least_float32(outputs)
        wanted = _counts(targets, log_rate)
        return per_point(wanted * log_rate - log_rate.exp() - torch.lgamma(wanted + 1))

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        return {"mu": at_least_float32(outputs).exp()}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        rate = at_least_float32(outputs).exp()
        return rate, rate

    def cumulative(self, outputs: Any, targets: Tensor) -> Tensor:
        return _cumulative(self.family, self.parameters(outputs), _counts(targets, outputs))


class NegativeBinomial(NumberLikelihood):
    """Counts whose variance, mean + dispersion * mean^2, exceeds their mean.

    Outputs are logarithms of the mean, or pairs (tuples) of that and the logarithm of the
    dispersion. At dispersion 0 it would be `Poisson`.

    Args:
        dispersion: if the model returns only means.
    """

    family = "nbinom"

    def __init__(self, dispersion: float | None = None) -> None:
        if dispersion is not None:
            dispersion = check_number("dispersion", dispersion, above=0)
        self.dispersion = dispersion

    def log_prob(self, outputs: Any, targets: Tensor) -> Tensor:
        log_mean, log_dispersion = self._logarithms(outputs)
        found = torch.distributions.NegativeBinomial(
            total_count=(-log_dispersion).exp(), logits=log_mean + log_dispersion
        )
        return per_point(found.log_prob(_counts(targets, log_mean)))

    def parameters(self, outputs: Any) -> dict[str, Tensor]:
        log_mean, log_dispersion = self._logarithms(outputs)
        odds = log_mean + log_dispersion
        return {"n": (-log_dispersion).exp(), "p": torch.sigmoid(-odds)}

    def mean_and_variance(self, outputs: Any) -> tuple[Tensor, Tensor]:
        log_mean, log_dispersion = self._logarithms(outputs)
        mean = log_mean.exp()
        return mean, mean + log_dispersion.exp() * mean.square()

    def cumulative(self, outputs: Any, targets: Tensor) -> Tensor:
        log_mean, _ = self._logarithms(outputs)
        return _cumulative(self.family, self.parameters(outputs), _counts(targets, log_mean))

    def _logarithms(self, outputs: Any) -> tuple[Tensor, Tensor]:
        known = None if self.dispersion is None else math.log(self.dispersion)
        remedy = "likelihood=NegativeBinomial(dispersion=...)"
        return one_or_two(outputs, known, "dispersion", remedy)


def one_or_two(
    outputs: Any, known: float | Tensor | None, name: str, remedy: str
) -> tuple[Tensor, Tensor]:
    """Two parameters: both outputs of the model, or one of them and what is `known`."""
    if isinstance(outputs, (tuple, list)):
        if len(outputs) != 2 or known is not None:
            raise ValueError(
                f"outputs must be one tensor with {name}= given, or pairs of two without; got "
                f"{len(outputs)} outputs and {name}={shown(known)}"
            )
        first, second = map(at_least_float32, outputs)
        return first, _for_each(second, first)
    if known is None:
        raise ValueError(
            f"the {name} of the noise is unknown: give {remedy}, or let the model return a tuple, "
            f"as (mean, {name}); one tensor of two columns is not taken for it"
        )
    first = at_least_float32(outputs)
    return first, torch.as_tensor(known, dtype=first.dtype, device=first.device).expand_as(first)


def _counts(targets: Tensor, outputs: Tensor) -> Tensor:
    """Targets in the shape of the outputs, if they are counts."""
    wanted = in_shape(targets, outputs.shape[1:], f"outputs of shape {tuple(outputs.shape[1:])}")
    wanted = wanted.to(at_least_float32(outputs))
    unlike = (wanted < 0) | (wanted != wanted.floor())
    if unlike.any():
        raise ValueError(f"targets must be counts, got {wanted[unlike][0].item():g}")
    return wanted


def _cumulative(family: str, parameters: dict[str, Tensor], targets: Tensor) -> Tensor:
    from scipy import stats  # noqa: PLC0415  (slow to import)

    like = next(iter(parameters.values()))
    wanted = in_shape(targets, like.shape[1:], "the outputs").double().cpu().numpy()
    kind: Any = getattr(stats, family)
    found = kind(**{name: value.double().cpu().numpy() for name, value in parameters.items()})
    below = found.cdf(wanted)
    if isinstance(kind, stats.rv_discrete):
        between = np.random.default_rng(0).random(wanted.shape)
        below = below - between * found.pmf(wanted)
    return torch.from_numpy(below).to(like.device)


def _for_each(variance: Tensor, mean: Tensor) -> Tensor:
    """A variance for each mean, if a draw has one for all, or one for each data point."""
    if variance.shape == mean.shape[:-1]:  # as gaussian_nll_loss reads it
        variance = variance.unsqueeze(-1)
    missing = [1] * (mean.ndim - variance.ndim)
    return variance.reshape(len(variance), *missing, *variance.shape[1:]).expand_as(mean)
