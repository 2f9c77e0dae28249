import numpy as np
import pytest
from scipy.signal import lfilter

from csgmcmc.diagnostics.mixing import (
    cycles_as_chains,
    effective_sample_size,
    r_hat,
)


def ar1(phi: float, n: int, chains: int) -> np.ndarray:
    """Stationary chains (n, chains) of mean 0 and variance 1 with autocorrelations phi^s."""
    noise = np.random.default_rng(3).normal(size=(n, chains))
    noise[1:] *= (1 - phi**2) ** 0.5
    return np.asarray(lfilter([1.0], [1.0, -phi], noise, axis=0))


@pytest.mark.parametrize("kind", ["bulk", "mean"])
def test_effective_sample_size_of_an_autoregression(kind):
    n, phi = 50_000, 0.7
    chains = ar1(phi, n, chains=12).T.reshape(4, 3, n).transpose(0, 2, 1)  # 4 chains, 3 dimensions
    exact = 4 * n * (1 - phi) / (1 + phi)
    ess = effective_sample_size(chains, kind)
    assert ess.shape == (3,)
    np.testing.assert_allclose(ess, exact, rtol=0.1)  # 5 standard errors, as 5% of its root are


def test_tail_ess_sees_a_tail_that_the_bulk_does_not():
    draws = np.random.default_rng(4).normal(size=(4, 1000))
    draws[:, 100:150] = np.abs(draws[:, 100:150]) + 3  # one stay in the upper tail
    tail, bulk = effective_sample_size(draws, "tail"), effective_sample_size(draws, "bulk")
    assert tail.shape == ()
    assert tail < bulk / 2


def test_r_hat_is_one_for_equal_distributions_and_large_for_different_ones():
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
    with pytest.raises(ValueError, match=r"kind must be one of .* got 'median'"):
        effective_sample_size(np.ones((2, 5)), "median")
    with pytest.raises(ValueError, match=r"at least 1 chains and 4 draws in each, got \(2, 3\)"):
        effective_sample_size(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"at least 2 chains and 4 draws in each, got \(1, 10\)"):
        r_hat(np.ones((1, 10)))
    with pytest.raises(ValueError, match=r"got \(10,\)"):
        effective_sample_size(np.ones(10))
    with pytest.raises(IndexError):
        cycles_as_chains(np.ones((5, 2)), [0, 0, 1, 1])
