"""How often to save a checkpoint where processes are lost at random.

A run works for `interval` seconds and saves, again and again. A failure loses what was done since
the last checkpoint; the restart takes time, and may fail again. With failures at random
(exponential, mean time M between them), a checkpoint of d seconds and a restart of R seconds, the
expected time for an interval t of useful work is exactly

    M exp(R / M) (exp((t + d) / M) - 1),

least for each second of work where exp((t + d) / M) (1 - t / M) = 1, which is about
sqrt(2 d M) (Young, "A first order approximation to the optimum checkpoint interval", Communications
of the ACM 1974; Daly, "A higher order estimate of the optimum checkpoint interval for restart
dumps", Future Generation Computer Systems 2006).
"""

import math
from typing import Any

import numpy as np


def young_interval(checkpoint: float, between_failures: float) -> float:
    """sqrt(2 d M): seconds of work between checkpoints, to first order."""
    return math.sqrt(2 * checkpoint * between_failures)


def best_interval(checkpoint: float, between_failures: float) -> float:
    """Seconds of work between checkpoints for which the expected time is least."""
    low, high = 0.0, 1.0  # t / M; the logarithm of the equation falls from d / M to minus infinity
    for _ in range(100):
        middle = (low + high) / 2
        if middle < 1 and middle + checkpoint / between_failures + math.log1p(-middle) > 0:
            low = middle
        else:
            high = middle
    return low * between_failures


def useful_share(
    interval: float, checkpoint: float, restart: float, between_failures: float
) -> float:
    """Expected share of the time that is work which is not lost, exactly."""
    t, d, r = (seconds / between_failures for seconds in (interval, checkpoint, restart))
    if t + d + r > 500:  # nothing is ever finished
        return 0.0
    return t / (math.exp(r) * math.expm1(t + d))


def simulate_share(
    interval: float, checkpoint: float, restart: float, between_failures: float, shape: float = 1.0
) -> float:
    """`useful_share` by simulation of 100,000 failures.

    `shape` is that of a Weibull distribution of the time from one failure to the next: 1 is at
    random; below 1, failures come in bursts, as those of real clusters do.
    """
    times = np.random.default_rng(0).weibull(shape, 100_000)
    times *= between_failures / math.gamma(1 + 1 / shape)
    finished = np.floor(np.maximum(times - restart, 0) / (interval + checkpoint))  # and saved
    return float(interval * finished.sum() / times.sum())


def checkpoint_rule(plan: Any, step_seconds: float) -> str:
    """How often the run of a `benchmarks.plan.Plan` should save."""
    between, saved = 3600 / plan.failures_per_hour, plan.checkpoint_seconds
    best, now = best_interval(saved, between), plan.checkpoint_every * step_seconds
    every = max(1, min(plan.own_steps, round(best / max(step_seconds, 1e-12))))
    shares = [useful_share(max(t, 1e-9), saved, plan.restart_seconds, between) for t in (best, now)]
    return (
        f"failures, {plan.failures_per_hour:g} an hour: checkpoint_every={every} (every "
        f"{readable_time(best)}) leaves {shares[0]:.1%} of the time for work that is not lost; "
        f"every {plan.checkpoint_every:,} steps leave {shares[1]:.1%}"
    )


def readable_time(seconds: float) -> str:
    """Seconds in the unit that fits."""
    units = ((1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min"))
    for limit, size, unit in units:
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 3600:.3g} h" if seconds < 172_800 else f"{seconds / 86_400:,.3g} days"
