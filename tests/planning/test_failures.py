"""How often to save: the simulation beside the exact expectation, and Young's formula."""

import math

import pytest

from csgmcmc.planning import best_interval, simulate_share, useful_share, young_interval

HOUR = 3600.0


@pytest.mark.parametrize("interval", [60.0, 600.0, 3600.0, 10_000.0])
@pytest.mark.parametrize("restart", [0.0, 300.0])
def test_the_simulation_is_the_expectation(interval, restart):
    exact = useful_share(interval, 30.0, restart, HOUR)
    # The number of intervals between failures varies by no more than its mean plus 1; four
    # standard errors of 10^5 of them: one false alarm in 16,000, and the seed is fixed.
    mean = exact * HOUR / interval
    spread = 4 * math.sqrt(mean**2 + mean) / math.sqrt(1e5) * interval / HOUR
    assert simulate_share(interval, 30.0, restart, HOUR) == pytest.approx(exact, abs=spread)


def test_an_expectation_by_hand():
    # Nothing is lost but the time of the checkpoints if failures are very rare.
    assert useful_share(90.0, 10.0, 60.0, 1e12) == pytest.approx(0.9)
    # M exp(R / M) (exp((t + d) / M) - 1) seconds for t of work.
    expected = 100 * math.exp(0.5) * (math.exp(0.6) - 1)
    assert useful_share(50.0, 10.0, 50.0, 100.0) == pytest.approx(50 / expected)
    assert useful_share(1e6, 1.0, 1.0, 1.0) == 0


@pytest.mark.parametrize("checkpoint", [0.1, 10.0, 300.0, 3000.0])
def test_the_best_interval_is_best(checkpoint):
    best = best_interval(checkpoint, HOUR)
    shares = [useful_share(best * factor, checkpoint, 60.0, HOUR) for factor in (0.9, 1, 1.1)]
    assert max(shares) == shares[1]
    assert best <= young_interval(checkpoint, HOUR)


def test_youngs_formula_is_the_limit_of_short_checkpoints():
    assert young_interval(8.0, 100.0) == 40.0
    assert best_interval(1e-3, HOUR) == pytest.approx(young_interval(1e-3, HOUR), rel=1e-3)


def test_failures_in_bursts_lose_less():
    at_random, bursts = (simulate_share(600.0, 30.0, 60.0, HOUR, shape=k) for k in (1.0, 0.6))
    assert bursts > at_random


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((0.0, 1.0, 1.0, 1.0), "interval must be above 0"),
        ((1.0, -1.0, 1.0, 1.0), "checkpoint must be at least 0"),
        ((1.0, 1.0, math.nan, 1.0), "restart must be finite"),
        ((1.0, 1.0, 1.0, 0.0), "between_failures must be above 0"),
    ],
)
def test_bad_input_is_named(values, words):
    for function in (useful_share, simulate_share):
        with pytest.raises(ValueError, match=words):
            function(*values)
