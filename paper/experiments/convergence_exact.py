"""What the theorems say, worked out on Gaussians: bias, MSE and W2 by `gaussian_moments`.

Step sizes are the library's own schedules times alpha_0, with no exploration, as in the paper's
analysis. Chains start from one point, `START` in each coordinate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from csgmcmc.schedules import Constant, Cyclical, Decreasing, Keep, Schedule
from paper.experiments import convergence_bounds as bounds
from paper.experiments.gaussian_moments import (
    Array,
    average_of_squares,
    distance,
    mean_of_squares,
    sgld_moments,
)

START = 2.0
SCALES = (0.5, 1.0, 2.0)  # of the Gaussian in three dimensions; that in one has scale 1
CYCLES = 4  # where their number is fixed, and their length grows with K
CYCLE_LENGTH = 50  # where their length is fixed, and their number grows with K
DOMINANT = 0.95  # share of one term above which a slope is said to be that term's
RELAXED = 20.0  # alpha_0 K from which the start is one term among others
SETTLED = 100.0  # alpha_0 K from which a single theta_k has forgotten the start
DECAYS = (1.0, 0.55)  # gamma: of the paper's analysis, and of its experiments
CURVE = 60  # points of a curve that goes into the record
NOISES = (0.0, 1.0, 3.0, 10.0)  # sigma
CONVEX_NOISES = (0.0, 1.0, 10.0, 100.0)
# Of the appendix's limit on alpha_0: at the last, the second of its two cases applies to one step
# a cycle, in the harder Gaussian.
SHARES_OF_LIMIT = (0.02, 0.2, 0.98)
LENGTHS = (1, 10, 100)  # steps in a cycle; one is a constant step size
NOISE_OF_BOUND = 0.1  # sigma of theorem 2, there a share of the squared gradient
BETA = 1.5  # alpha_0 = K^-beta, any beta above 1 as theorem 2 asks

Numbers = Sequence[float]
Mask = NDArray[np.bool_]


def rounded(values: Any) -> Any:
    """Five digits, and None for what is not finite; lists stay lists."""
    if np.ndim(values):
        return [rounded(value) for value in values]
    return float(f"{values:.5g}") if np.isfinite(values) else None


def cyclical(steps: int, *, fixed_length: bool) -> Cyclical:
    """The paper's schedule, sampling all the time."""
    cycles = steps // CYCLE_LENGTH if fixed_length else CYCLES
    return Cyclical(steps, cycles=cycles, exploration=0, keep=Keep(every=1))


def shares(schedule: Schedule) -> Array:
    """What each step of a schedule takes of alpha_0."""
    return schedule.table()["lr_scale"]


def slope(x: Array, y: Array, use: Mask) -> dict[str, Any] | None:
    """The exponent of y in x, fitted on the points to use; None where they are fewer than 3."""
    if use.sum() < 3:
        return None
    exponent, _ = np.polyfit(np.log(x[use]), np.log(y[use]), 1)
    return {
        "slope": rounded(exponent),
        "points": int(use.sum()),
        "from": rounded(x[use].min()),
        "to": rounded(x[use].max()),
    }


def rates(steps: Sequence[int], alphas: Numbers, *, fixed_length: bool) -> dict[str, Any]:
    """Bias and MSE of averages of theta^2 on N(0, 1), and W2, for every alpha_0 and K."""
    schedules = [cyclical(count, fixed_length=fixed_length) for count in steps]
    tables = [shares(schedule) for schedule in schedules]
    shape = (len(alphas), len(steps))
    # From a chain that starts in the target, the bias is that of the step size alone.
    found = {
        average: {name: np.zeros(shape) for name in ("bias", "settled", "variance")}
        for average in ("plain", "weighted")
    }
    end, worst, theta = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for row, alpha0 in enumerate(alphas):
        for column, (schedule, table) in enumerate(zip(schedules, tables, strict=True)):
            here = row, column
            sizes = alpha0 * table
            moments = sgld_moments(sizes, 1.0, mean=START, variance=0.0)
            settled = sgld_moments(sizes, 1.0, mean=0.0, variance=1.0)
            for name, weights in (("plain", np.ones_like(sizes)), ("weighted", sizes)):
                average = average_of_squares(moments, weights)
                found[name]["bias"][here] = average.mean - 1
                found[name]["settled"][here] = mean_of_squares(settled, weights) - 1
                found[name]["variance"][here] = average.variance
            away = distance([moments])
            end[here], worst[here] = away[-1], away[-schedule.cycle_length :].max()
            theta[here] = moments.mean.mean()
    axes = np.array(steps, dtype=float), np.array(alphas)
    return {
        "K": list(steps),
        "alpha0": list(alphas),
        **{name: _with_slopes(*axes, **parts) for name, parts in found.items()},
        "theta_bias": rounded(theta),
        "w2_end": rounded(end),
        "w2_worst": rounded(worst),
        "w2_slope_K": slope(axes[0], end[-1], axes[0] * axes[1][-1] >= SETTLED),
        "w2_slope_alpha0": slope(axes[1], end[:, -1], axes[0][-1] * axes[1] >= SETTLED),
    }


def _with_slopes(
    steps: Array, alphas: Array, bias: Array, settled: Array, variance: Array
) -> dict[str, Any]:
    """The numbers, and the exponents of K and alpha_0 where one term of the rate dominates."""
    mse = bias**2 + variance
    relaxed = alphas[:, None] * steps >= RELAXED
    of_start = relaxed & ((bias - settled) / bias >= DOMINANT)
    of_chance = relaxed & (variance / mse >= DOMINANT)
    of_steps = relaxed & (settled / bias >= DOMINANT)
    of_bias = relaxed & (bias**2 / mse >= DOMINANT)

    def along_steps(values: Array, use: Mask) -> dict[str, Any] | None:
        row = int(np.argmax(use.sum(axis=1)))  # the alpha_0 with the longest line
        fitted = slope(steps, values[row], use[row])
        return None if fitted is None else {**fitted, "at": rounded(alphas[row])}

    def along_alphas(values: Array, use: Mask) -> dict[str, Any] | None:
        fitted = slope(alphas, values[:, -1], use[:, -1])
        return None if fitted is None else {**fitted, "at": int(steps[-1])}

    return {
        "bias": rounded(bias),
        "bias_of_step_size": rounded(settled),
        "mse": rounded(mse),
        "slopes": {
            "bias_K": along_steps(bias, of_start),
            "bias_alpha0": along_alphas(bias, of_steps),
            "mse_K": along_steps(mse, of_chance),
            "mse_alpha0": along_alphas(mse, of_bias),
        },
    }


@dataclass(frozen=True)
class Method:
    """A schedule and the step size that it starts from."""

    name: str
    alpha0: float
    schedule: Schedule


def methods(steps: int, alpha0: float, every: int = 1) -> list[Method]:
    """Cyclical steps and what they are held against: equal sum of the steps, or equal first."""
    cyclic = Cyclical(steps, cycles=CYCLES, exploration=0, keep=Keep(every=every))
    total = alpha0 * float(shares(cyclic).sum())
    listed = [Method("cyclical", alpha0, cyclic)]
    listed.append(
        Method("constant, equal sum", total / steps, Constant(steps, keep=Keep(every=every)))
    )
    falling = {gamma: Decreasing(steps, gamma, keep=Keep(every=every)) for gamma in DECAYS}
    for gamma, schedule in falling.items():
        first = total / float(shares(schedule).sum())
        listed.append(Method(f"k^-{gamma:g}, equal sum", first, schedule))
    for gamma, schedule in falling.items():
        listed.append(Method(f"k^-{gamma:g}, equal first step", alpha0, schedule))
    return listed


def distances(steps: int, alpha0: float) -> dict[str, Any]:
    """W2 to a Gaussian in three dimensions after each step, by method."""
    shown = np.unique(np.geomspace(1, steps, CURVE).round().astype(int))
    # Of the cyclical steps also the last cycle's inside, where steps are not small.
    last_cycle = slice(steps - steps // CYCLES, steps)
    rows = {}
    for method in methods(steps, alpha0):
        sizes = method.alpha0 * shares(method.schedule)
        coordinates = [sgld_moments(sizes, scale, mean=START, variance=0.0) for scale in SCALES]
        away = distance(coordinates)
        rows[method.name] = {
            "first_step": rounded(method.alpha0),
            "sum": rounded(sizes.sum()),
            "end": rounded(away[-1]),
            "last_quarter_mean": rounded(away[last_cycle].mean()),
            "last_quarter_worst": rounded(away[last_cycle].max()),
            "worst": rounded(away.max()),
            "curve": rounded(away[shown - 1]),
        }
    return {"K": steps, "alpha0": alpha0, "shown": shown.tolist(), "methods": rows}


def strongly_convex(steps: int) -> dict[str, Any]:
    """The appendix's bound beside the exact distance, for an easy and a harder Gaussian."""
    rows = [
        _against_bounds(steps, scales, share, length, noise)
        for scales in ((1.0,), SCALES)
        for share in SHARES_OF_LIMIT
        for length in LENGTHS
        for noise in CONVEX_NOISES
    ]
    return {"K": steps, "rows": rows}


def _against_bounds(
    steps: int, scales: Numbers, share: float, length: int, noise: float
) -> dict[str, Any]:
    """A bound after the last step, and the least ratio to the distance over all steps."""
    convexity, smoothness = 1 / max(scales) ** 2, 1 / min(scales) ** 2
    alpha0 = share * min(1 / convexity, 2 / smoothness)
    sizes = alpha0 * shares(
        Cyclical(steps, cycles=steps // length, exploration=0, keep=Keep(every=1))
    )
    away = distance([sgld_moments(sizes, scale, START, 0.0, noise) for scale in scales])
    first = float(np.sqrt(sum(START**2 + scale**2 for scale in scales)))
    curvature = bounds.Curvature(convexity, smoothness, dimension=len(scales))
    counts = np.arange(1.0, steps + 1)
    found = {
        "stated": bounds.strongly_convex(counts, sizes, first, curvature, noise=0.0),
        "mended": bounds.strongly_convex(counts, sizes, first, curvature, noise=noise),
        "stepwise": bounds.strongly_convex_stepwise(sizes, first, curvature, noise=noise),
    }
    row: dict[str, Any] = {
        "condition": rounded(smoothness / convexity),
        "alpha0": rounded(alpha0),
        "length": length,
        "sigma": noise,
        "w2": rounded(away[-1]),
    }
    for name, bound in found.items():
        row[name] = rounded(bound[-1])
        row[f"{name}_least_ratio"] = rounded((bound / away).min())
    return row


def gradient_noise(steps: int, alphas: Numbers) -> dict[str, Any]:
    """Bias of the weighted average of theta^2 on N(0, 1), started in it, by sigma and alpha_0."""
    table = shares(cyclical(steps, fixed_length=True))
    bias = np.zeros((len(NOISES), len(alphas)))
    for row, noise in enumerate(NOISES):
        for column, alpha0 in enumerate(alphas):
            moments = sgld_moments(alpha0 * table, 1.0, mean=0.0, variance=1.0, noise=noise)
            bias[row, column] = mean_of_squares(moments, table) - 1
    size, noises = np.array(alphas), np.array(NOISES[1:])
    excess = bias[1:] - bias[0]
    settled = size * steps >= SETTLED
    return {
        "K": steps,
        "alpha0": list(alphas),
        "sigma": list(NOISES),
        "bias": rounded(bias),
        "slope_alpha0": slope(size, excess[0], settled),
        "slope_sigma": slope(noises, excess[:, -1], noises > 0),
    }


def vanishing_steps(steps: Sequence[int]) -> dict[str, Any]:
    """Theorem 2's particular case alpha_0 = K^-beta on N(0, 1), beside its bound and the start."""
    rows = []
    for count in steps:
        alpha0 = count**-BETA
        sizes = alpha0 * shares(cyclical(count, fixed_length=False))
        moments = sgld_moments(sizes, 1.0, mean=START, variance=0.0)
        rows.append(
            {
                "K": count,
                "alpha0": rounded(alpha0),
                "sum": rounded(sizes.sum()),
                "w2": rounded(distance([moments])[-1]),
                "bound": rounded(bounds.theorem_two(count, alpha0, START)),
            }
        )
    return {"beta": BETA, "start": rounded(np.hypot(START, 1.0)), "rows": rows}


def bounds_of_theorem_two(steps: Sequence[int], alphas: Numbers) -> dict[str, Any]:
    """The bound for fixed alpha_0 as K grows, and at the alpha_0 that makes it least.

    The exact distances are in `rates`.
    """
    # From no step at all, where the bound is C_3, up to the proof's limit m / (4 M^2).
    candidates = [0.0, *np.geomspace(1e-12, 0.25, 400)]
    best = {
        noise: [min(bounds.theorem_two(k, a, START, noise) for a in candidates) for k in steps]
        for noise in (0.0, NOISE_OF_BOUND)
    }
    return {
        "K": list(steps),
        "alpha0": list(alphas),
        "bound": rounded([[bounds.theorem_two(k, a, START) for k in steps] for a in alphas]),
        "least": rounded(best[0.0]),
        "least_with_noise": rounded(best[NOISE_OF_BOUND]),
        "noise": NOISE_OF_BOUND,
    }
