"""Effective sample size, R-hat and Monte Carlo standard error."""

from typing import Any

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import ArrayLike, NDArray
from scipy.fft import next_fast_len

from csgmcmc.arguments import check_choice, shown
from csgmcmc.diagnostics.arrays import check_no_nan, check_numbers


def reference_ess(
    draws: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, truncate: bool
) -> NDArray[np.float64]:
    """Effective sample size of one chain, about the mean and variance of a reference run.

        B / (1 + 2 * sum_{s=1}^{B-1} (1 - s / B) * rho_s),
        rho_s = sum_{b=s+1}^{B} (x_b - mean) * (x_{b-s} - mean) / (variance * (B - s))

    (Hoffman and Gelman 2014; Zhang et al. 2020.) `draws` has shape (n,) or (n, d), and there is
    one number for each dimension. With `truncate` the sum stops before the first lag with
    rho_s < 0.05, the rule of Hoffman and Gelman. Without it the whole is equal to
    B / (1 + B * (xbar - mean)^2 / variance - s2 / variance), s2 the second moment about `mean`:
    it says almost nothing about the chain, and can be negative or more than B.
    """
    x = check_numbers("draws", draws)
    if x.ndim not in (1, 2) or len(x) < 2:
        raise ValueError(f"draws must have shape (n,) or (n, d) with n at least 2, got {x.shape}")
    centre = _for_each_dimension("mean", mean, x)
    scale = _for_each_dimension("variance", variance, x)
    if not np.all(scale > 0):
        raise ValueError(f"variance must be above 0, got {shown(variance)}")
    n = len(x)
    padded = next_fast_len(2 * n, real=True)  # no circular correlation
    spectrum = np.fft.rfft(x - centre, padded, axis=0)
    products = np.fft.irfft(np.abs(spectrum) ** 2, padded, axis=0)
    lags = np.arange(1, n).reshape(-1, *[1] * (x.ndim - 1))
    rho = products[1:n] / (scale * (n - lags))
    if truncate:
        rho = np.where(np.logical_and.accumulate(rho >= 0.05, axis=0), rho, 0.0)
    return n / (1 + 2 * ((1 - lags / n) * rho).sum(axis=0))


def effective_sample_size(draws: ArrayLike, kind: str = "bulk") -> NDArray[np.float64]:
    """Effective sample size of draws of shape (chains, n, ...), one for each entry of (...).

    `kind` is "bulk" (rank-normalised), "tail" (the worse of the 5% and 95% quantiles) or "mean"
    (of the plain mean), all of split chains (Vehtari et al. 2021). Draws that are all equal count
    in full; R-hat is nan for them.
    """
    check_choice("kind", kind, ("bulk", "tail", "mean"))
    prob = (0.05, 0.95) if kind == "tail" else None
    return _summary("ess", draws, method=kind, prob=prob)


def r_hat(draws: ArrayLike) -> NDArray[np.float64]:
    """Rank-normalised split R-hat of draws of shape (chains, n, ...), one for each entry of (...).

    Near 1 where the chains agree; above 1.01 they do not yet (Vehtari et al. 2021). It is nan where
    all draws are equal.
    """
    return _summary("rhat", draws, at_least=2)


def mcse(draws: ArrayLike) -> NDArray[np.float64]:
    """Monte Carlo standard error of the mean of draws of shape (chains, n, ...)."""
    return _summary("mcse", draws)


def cycles_as_chains(values: ArrayLike, cycles: ArrayLike) -> NDArray:
    """One chain's values (n, ...) as chains (cycles, draws per cycle, ...), one for each cycle.

    `cycles` (n,) is the cycle number of each value. All cycles are cut to the length of the
    shortest, and keep their last draws in the order in which they came: the later in a cycle, the
    closer to equilibrium. R-hat of the result compares the cycles with each other, and, since it
    splits every chain in two, the start of a cycle with its end.
    """
    x, numbers = check_no_nan("values", values), check_no_nan("cycles", cycles)
    if x.ndim < 1 or numbers.shape != x.shape[:1] or not numbers.size:
        raise ValueError(
            f"values must have shape (n, ...) and cycles (n,), n at least 1, got {x.shape} and "
            f"{numbers.shape}"
        )
    cycle_numbers, lengths = np.unique(numbers, return_counts=True)
    return np.stack([x[numbers == number][-lengths.min() :] for number in cycle_numbers])


def _summary(
    name: str, draws: ArrayLike, *, at_least: int = 1, **options: Any
) -> NDArray[np.float64]:
    """The statistic `name` of arviz-stats; raises where arviz-stats would return nan."""
    x = check_numbers("draws", draws)
    if x.ndim < 2 or x.shape[0] < at_least or x.shape[1] < 4:
        raise ValueError(
            f"draws must have shape (chains, n, ...) with at least {at_least} chains and 4 draws "
            f"in each, got {x.shape}"
        )
    with np.errstate(divide="ignore", invalid="ignore"):  # equal draws have no variance
        return np.asarray(getattr(array_stats, name)(x, chain_axis=0, draw_axis=1, **options))


def _for_each_dimension(name: str, value: ArrayLike, x: NDArray) -> NDArray[np.float64]:
    """`value` as one number, or as one for each dimension of the draws `x`."""
    array = check_numbers(name, value)
    if array.shape not in ((), x.shape[1:]):
        raise ValueError(f"{name} must be a number or have shape {x.shape[1:]}, got {array.shape}")
    return array
