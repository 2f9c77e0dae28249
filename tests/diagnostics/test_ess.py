import numpy as np
import pytest
from scipy.signal import lfilter

from csgmcmc.diagnostics.ess import (
    cycles_as_chains,
    effective_sample_size,
    mcse,
    r_hat,
    reference_ess,
)

# Statistical tests fail by chance once in 150,000 times: 4.5 standard errors.
SIGMAS = 4.5


def ar1(phi: float, n: int, chains: int) -> np.ndarray:
    """Stationary chains (n, chains) of mean 0 and variance 1 with autocorrelations phi^s."""
    noise = np.random.default_rng(3).normal(size=(n, chains))
    noise[1:] *= (1 - phi**2) ** 0.5
    return np.asarray(lfilter([1.0], [1.0, -phi], noise, axis=0))


def slow_reference_ess(x: np.ndarray, mean: float, variance: float, truncate: bool) -> float:
    n = len(x)
    total = 0.0
    for s in range(1, n):
        products = sum((x[b] - mean) * (x[b - s] - mean) for b in range(s, n))
        rho = products / (variance * (n - s))
        if truncate and rho < 0.05:
            break
        total += (1 - s / n) * rho
    return n / (1 + 2 * total)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("n", [2, 3, 50])
def test_reference_ess_is_the_formula(n, truncate):
    draws = ar1(0.8, n, chains=2) * [1.0, 3.0] + [0.0, 5.0]
    mean, variance = np.array([0.1, 4.8]), np.array([1.2, 8.0])
    slow = [
        slow_reference_ess(draws[:, i], mean[i], variance[i], truncate) for i in range(len(mean))
    ]
    np.testing.assert_allclose(reference_ess(draws, mean, variance, truncate=truncate), slow)
    one = reference_ess(draws[:, 1], mean[1], variance[1], truncate=truncate)
    assert one.shape == ()
    assert one == pytest.approx(slow[1])


def test_untruncated_reference_ess_is_known_from_two_moments():
    draws, mean, variance = ar1(0.9, 1000, chains=5), 0.2, 1.3
    n, distance = len(draws), (draws.mean(axis=0) - mean) ** 2
    second_moment = ((draws - mean) ** 2).mean(axis=0)
    exact = n / (1 + n * distance / variance - second_moment / variance)
    np.testing.assert_allclose(reference_ess(draws, mean, variance, truncate=False), exact)


def test_untruncated_reference_ess_can_exceed_the_draws_or_be_negative():
    swings = np.tile([1.0, -1.0], 50)  # mean 0, second moment 1
    assert reference_ess(swings, 0.0, 2.0, truncate=False) == pytest.approx(100 / (1 - 1 / 2))
    assert reference_ess(swings, 0.0, 0.5, truncate=False) == pytest.approx(100 / (1 - 2))


def test_truncated_reference_ess_of_an_autoregression():
    n, phi = 100_000, 0.3  # lags 1 and 2 are 10 standard errors above 0.05, lag 3 is 6 below
    ess = reference_ess(ar1(phi, n, chains=20), 0.0, 1.0, truncate=True)
    exact = n / (1 + 2 * ((1 - 1 / n) * phi + (1 - 2 / n) * phi**2))
    assert abs(ess.mean() - exact) < SIGMAS * ess.std(ddof=1) / len(ess) ** 0.5


def test_truncated_reference_ess_is_near_that_of_all_lags():
    n, phi = 50_000, 0.9  # the lags below 0.05 are 5% of the sum, chance makes 1%
    ess = reference_ess(ar1(phi, n, chains=20), 0.0, 1.0, truncate=True)
    assert ess.mean() == pytest.approx(n * (1 - phi) / (1 + phi), rel=0.1)


@pytest.mark.parametrize("kind", ["bulk", "mean"])
def test_effective_sample_size_and_mcse_of_an_autoregression(kind):
    n, phi = 50_000, 0.7
    chains = ar1(phi, n, chains=12).T.reshape(4, 3, n).transpose(0, 2, 1)  # 4 chains, 3 dimensions
    exact = 4 * n * (1 - phi) / (1 + phi)
    ess = effective_sample_size(chains, kind)
    assert ess.shape == (3,)
    np.testing.assert_allclose(ess, exact, rtol=0.1)  # 5 standard errors, as 5% of its root are
    np.testing.assert_allclose(mcse(chains), exact**-0.5, rtol=0.05)


def test_tail_ess_sees_a_tail_that_the_bulk_does_not():
    draws = np.random.default_rng(4).normal(size=(4, 1000))
    draws[:, 100:150] = np.abs(draws[:, 100:150]) + 3  # one stay in the upper tail
    tail, bulk = effective_sample_size(draws, "tail"), effective_sample_size(draws, "bulk")
    assert tail.shape == ()
    assert tail < bulk / 2


def test_r_hat_is_one_for_equal_laws_and_large_for_different_ones():
    draws = np.random.default_rng(5).normal(size=(4, 1000, 2))
    draws[:, :, 1] += np.arange(4)[:, None]
    same, shifted = r_hat(draws)
    # R-hat^2 - 1 is about (chi-square / 7 - 1) / 500 for 8 half chains: once in a million
    # times it is above 0.0096.
    assert same < 1.006
    assert shifted > 1.5
    assert np.isnan(r_hat(np.ones((2, 10))))


def test_cycles_become_chains_of_their_last_draws():
    values = np.arange(14).reshape(7, 2)
    chains = cycles_as_chains(values, [2, 2, 2, 1, 1, 5, 5])
    assert chains.tolist() == [[[6, 7], [8, 9]], [[2, 3], [4, 5]], [[10, 11], [12, 13]]]
    assert cycles_as_chains([1.0, 2.0, 3.0], [0, 1, 0]).tolist() == [[3.0], [2.0]]


def test_r_hat_sees_cycles_that_found_different_modes():
    values = np.random.default_rng(6).normal(size=(4, 50)) + 10 * np.arange(4)[:, None]
    cycles = np.repeat(np.arange(4), 50)
    assert r_hat(cycles_as_chains(values.ravel(), cycles)) > 1.5


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"n at least 2, got \(1, 2\)"):
        reference_ess(np.ones((1, 2)), 0.0, 1.0, truncate=True)
    with pytest.raises(ValueError, match=r"mean must be a number or have shape \(2,\), got \(3,\)"):
        reference_ess(np.ones((5, 2)), np.ones(3), 1.0, truncate=True)
    with pytest.raises(ValueError, match=r"variance must be above 0, got 0\.0"):
        reference_ess(np.ones(5), 0.0, 0.0, truncate=True)
    with pytest.raises(ValueError, match=r"kind must be one of .* got 'median'"):
        effective_sample_size(np.ones((2, 5)), "median")
    with pytest.raises(ValueError, match=r"at least 1 chains and 4 draws in each, got \(2, 3\)"):
        mcse(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"at least 2 chains and 4 draws in each, got \(1, 10\)"):
        r_hat(np.ones((1, 10)))
    with pytest.raises(ValueError, match=r"got \(10,\)"):
        effective_sample_size(np.ones(10))
    with pytest.raises(ValueError, match=r"got \(5, 2\) and \(4,\)"):
        cycles_as_chains(np.ones((5, 2)), [0, 0, 1, 1])
