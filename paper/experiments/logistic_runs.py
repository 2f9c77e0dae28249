"""Chains on logistic regressions, the reference that they are judged by, and the judgment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from csgmcmc.diagnostics import effective_sample_size, r_hat
from csgmcmc.samplers import SGHMC
from csgmcmc.schedules import Schedule
from paper.density import run_density
from paper.devices import device
from paper.diagnostics import mcse, reference_ess
from paper.experiments.base import Record
from paper.hmc import hmc, laplace
from paper.targets import LogisticRegression

R_HAT = 1.01
"""At or above this, the chains of a reference do not agree."""


@dataclass(frozen=True)
class Settings:
    """Sampler x schedule; momentum 0 is SGLD, and no number of cycles is the decreasing step."""

    lr: float
    momentum: float
    cycles: int | None
    batch: int | None


def lr_with_excess(
    excess: float, momentum: float, curvature: float, num_data: int, batch: int | None
) -> float:
    """The lr at which the variance along a direction of `curvature` is 1 + excess times too large.

    By `SGHMC.stationary_variance`, solved for lr. The gradient of one data point is taken to have
    the curvature as its variance, as it has where the model is true, and that of a batch drawn
    with replacement so much less.
    """
    of_batches = num_data / (2 * batch * (1 - momentum)) if batch else 0.0
    of_steps = 1 / (2 * (1 + momentum))
    return excess / (of_batches + (1 + excess) * of_steps) / curvature


def sample(
    target: LogisticRegression, settings: Settings, schedule: Schedule, seeds: Sequence[int]
) -> NDArray[np.float64]:
    """Draws (seeds, n, d) of a chain for each seed, started from a draw of the prior.

    The chains of one call would have their batches in common, and not be independent: each has a
    call of its own.
    """
    data = target.features.to(device()), target.labels.to(device())
    target = LogisticRegression(*data, target.prior_variance)
    runs = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        points = torch.randn(1, target.dimension, generator=generator, dtype=torch.float64)
        points = (points * math.sqrt(target.prior_variance)).to(device())
        sampler = SGHMC(
            [points],
            settings.lr,
            num_data=target.num_data,
            momentum=settings.momentum,
            weight_decay=target.weight_decay if settings.batch else 0.0,  # else it is the target's
            seed=seed,
        )
        runs.append(run_density(target, sampler, schedule, batch_size=settings.batch)[:, 0])
    return torch.stack(runs).cpu().numpy()


def reference(target: LogisticRegression, *, chains: int, warm_up: int, draws: int) -> Record:
    """Mean and sd of every coordinate, how well they are known, and the curvatures of U / N."""
    near = laplace(target)
    run = hmc(target, near, chains=chains, warm_up=warm_up, draws=draws, seed=0)
    found = run.draws.numpy()
    worst = float(r_hat(found).max())
    if worst >= R_HAT:
        raise ValueError(f"the reference has an R-hat of {worst:.4f}, not below {R_HAT}")
    sd = found.std(axis=(0, 1))
    curvatures = torch.linalg.eigvalsh(near.precision) / target.num_data
    return {
        "num_data": target.num_data,
        "dimension": target.dimension,
        "mean": found.mean(axis=(0, 1)).tolist(),
        "sd": sd.tolist(),
        "r_hat": worst,
        "ess": float(min(effective_sample_size(found, kind).min() for kind in ("bulk", "tail"))),
        "standard_error": float((mcse(found) / sd).max()),
        "accepted": run.accepted,
        "smallest_curvature": float(curvatures[0]),
        "largest_curvature": float(curvatures[-1]),
    }


def score(runs: NDArray, mean: NDArray, sd: NDArray) -> Record:
    """How draws of shape (seeds, n, d) compare with the right `mean` and `sd`, as lists over seeds.

    Effective sample sizes are medians over the coordinates: by the paper's formula, which is not
    truncated; by the same, truncated; and the usual one, with the chain's own mean and variance.
    `mean_error` is the root mean square over coordinates, in sds. `sd_ratio` is the median over
    coordinates, `sd_worst` the largest factor by which an sd is too large or too small. `pooled`
    is of all seeds taken together: where that is wrong, it is not for want of draws.
    """
    untruncated = [reference_ess(draws, mean, sd**2, truncate=False) for draws in runs]
    truncated = [reference_ess(draws, mean, sd**2, truncate=True) for draws in runs]
    usual = [effective_sample_size(draws[None]) for draws in runs]
    each = [_moment_errors(draws, mean, sd) for draws in runs]
    return {
        "ess_untruncated": [_rounded(np.median(sizes)) for sizes in untruncated],
        "ess_truncated": [_rounded(np.median(sizes)) for sizes in truncated],
        "ess_usual": [_rounded(np.median(sizes)) for sizes in usual],
        **{name: [errors[name] for errors in each] for name in each[0]},
        "pooled": _moment_errors(runs.reshape(-1, runs.shape[-1]), mean, sd),
    }


def _moment_errors(draws: NDArray, mean: NDArray, sd: NDArray) -> dict[str, float]:
    errors = (draws.mean(axis=0) - mean) / sd
    ratios = draws.std(axis=0) / sd
    return {
        "mean_error": _rounded(np.sqrt(np.mean(errors**2))),
        "sd_ratio": _rounded(np.median(ratios)),
        "sd_worst": _rounded(np.exp(np.abs(np.log(ratios)).max())),
    }


def _rounded(number: float) -> float:
    return float(f"{number:.5g}")
