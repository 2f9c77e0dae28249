r"""How often to save a checkpoint, where processes are lost at random.

A run works for `interval` seconds and saves, again and again. A failure loses what was done since
the last checkpoint; the restart takes time, in which it may fail again. With failures at random
(exponential, mean time M between them), a checkpoint of d seconds and a restart of R seconds, the
expected time for an interval t of useful work is exactly

    M exp(R / M) (exp((t + d) / M) - 1),

least for each second of work where exp((t + d) / M) (1 - t / M) = 1, which is about
sqrt(2 d M) (Young, "A first order approximation to the optimum checkpoint interval", Communications
of the ACM 1974; Daly, "A higher order estimate of the optimum checkpoint interval for restart
dumps", Future Generation Computer Systems 2006).
"""

import math

import numpy as np

from csgmcmc.arguments import check_count, check_number


def young_interval(checkpoint: float, between_failures: float) -> float:
    """sqrt(2 d M): seconds of work between checkpoints, to first order."""
    d = check_number("checkpoint", checkpoint, at_least=0)
    return math.sqrt(2 * d * check_number("between_failures", between_failures, above=0))


def best_interval(checkpoint: float, between_failures: float) -> float:
    """Seconds of work between checkpoints for which the expected time is least."""
    d = check_number("checkpoint", checkpoint, at_least=0)
    mean = check_number("between_failures", between_failures, above=0)
    low, high = 0.0, 1.0  # t / M; the equation below falls from d / M to minus infinity
    for _ in range(100):
        middle = (low + high) / 2
        if middle < 1 and middle + d / mean + math.log1p(-middle) > 0:
            low = middle
        else:
            high = middle
    return low * mean


def useful_share(
    interval: float, checkpoint: float, restart: float, between_failures: float
) -> float:
    """Expected share of the time that is work which is not lost, exactly."""
    t, d, restart, mean = _checked(interval, checkpoint, restart, between_failures)
    if (t + d + restart) / mean > 500:  # nothing is ever finished
        return 0.0
    return t / (mean * math.exp(restart / mean) * math.expm1((t + d) / mean))


def simulate_share(
    interval: float,
    checkpoint: float,
    restart: float,
    between_failures: float,
    *,
    failures: int = 100_000,
    shape: float = 1.0,
    seed: int = 0,
) -> float:
    """`useful_share` by simulation of many failures.

    `shape` is that of a Weibull distribution of the time from one failure to the next: 1 is at
    random; below 1, failures come in bursts, as those of real clusters do.
    """
    t, d, restart, mean = _checked(interval, checkpoint, restart, between_failures)
    check_count("failures", failures, at_least=1)
    shape = check_number("shape", shape, at_least=0.1, at_most=100)
    times = np.random.default_rng(seed).weibull(shape, failures)
    times *= mean / math.gamma(1 + 1 / shape)
    finished = np.floor(np.maximum(times - restart, 0) / (t + d))  # intervals that were saved
    return float(t * finished.sum() / times.sum())


def _checked(interval: float, checkpoint: float, restart: float, mean: float) -> list[float]:
    return [
        check_number("interval", interval, above=0),
        check_number("checkpoint", checkpoint, at_least=0),
        check_number("restart", restart, at_least=0),
        check_number("between_failures", mean, above=0),
    ]
