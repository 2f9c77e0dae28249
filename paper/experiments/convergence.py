"""Theorems 1 and 2, and the strongly convex case: the rates on targets whose answer is exact.

On Gaussians all is worked out, see `convergence_exact`. Chains of the library are simulated for
two ends: to check those moments, and for a density with two wells, which has no closed form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import erfc, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.samplers import SGLD
from csgmcmc.schedules import Constant, Cyclical, Decreasing, Keep
from paper.arguments import check_count
from paper.density import run_density
from paper.devices import device
from paper.double_well import DoubleWell, wasserstein
from paper.experiments import convergence_exact as exact
from paper.experiments.base import Config, Experiment, Record
from paper.experiments.convergence_exact import SCALES, START, Method, methods, rounded
from paper.experiments.gaussian_moments import average_of_squares, sgld_moments
from paper.targets import GaussianTarget

WELL_SCALE = 0.3
WELL_LIGHT = 0.25  # mass of the well that the chains start in
WELL_ALPHA = 0.02
WELL_LOOKS = 20  # times at which the chains are looked at

CHECK_STEPS = 400
CHECK_ALPHA = 0.1
CHECK_NOISE = 1.0
LIMIT = 4.5  # z-scores beyond it are a disagreement of recursion and chains


@dataclass(frozen=True)
class ConvergenceConfig(Config):
    """`rate_steps` are the values of K, `rate_alphas` those of alpha_0, both ascending."""

    seeds: int = 10
    rate_steps: tuple[int, ...] = (
        *(100, 300, 1_000, 3_000, 10_000, 30_000),
        *(100_000, 300_000, 1_000_000),
    )
    rate_alphas: tuple[float, ...] = (
        *(0.0002, 0.0005, 0.001, 0.002, 0.005),
        *(0.01, 0.02, 0.05, 0.1, 0.15, 0.2),
    )
    distance_steps: tuple[int, ...] = (1_000, 10_000, 100_000)
    distance_alphas: tuple[float, ...] = (0.01, 0.05)
    convex_steps: int = 10_000
    noise_steps: int = 100_000
    check_chains: int = 10_000
    well_steps: int = 5_000
    well_chains: int = 4_096

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("check_chains", self.check_chains, at_least=2)
        check_count("well_chains", self.well_chains, at_least=1)


CHECKS = {
    "cyclical": Cyclical(CHECK_STEPS, cycles=exact.CYCLES, exploration=0, keep=Keep(every=1)),
    "decreasing": Decreasing(CHECK_STEPS, gamma=0.55, keep=Keep(every=1)),
    "constant": Constant(CHECK_STEPS, keep=Keep(every=1)),
}


class Convergence(Experiment[ConvergenceConfig]):
    """Bias, MSE and W2 of cSGLD beside the rates of the theorems."""

    name = "convergence"
    summary = "bias, MSE and W2 of cSGLD on Gaussians, exactly, and on a double well"
    presets: Mapping[str, ConvergenceConfig] = {
        "paper": ConvergenceConfig(),
        "laptop": ConvergenceConfig(
            seeds=4,
            rate_steps=ConvergenceConfig.rate_steps[:-1],
            distance_steps=(1_000, 10_000),
            noise_steps=10_000,
        ),
        "smoke": ConvergenceConfig(
            seeds=2,
            rate_steps=(100, 200, 400, 800, 1600),
            rate_alphas=(0.01, 0.05, 0.1, 0.2),
            distance_steps=(400,),
            distance_alphas=(0.05,),
            convex_steps=400,
            noise_steps=1_000,
            check_chains=400,
            well_steps=400,
            well_chains=64,
        ),
    }

    def jobs(
        self, config: ConvergenceConfig, done: Mapping[str, Record]
    ) -> dict[str, dict[str, Any]]:
        listed: dict[str, dict[str, Any]] = {
            "rates, fixed number of cycles": {"kind": "rates", "fixed_length": False},
            "rates, fixed length of cycles": {"kind": "rates", "fixed_length": True},
            "strongly convex": {"kind": "strongly convex"},
            "gradient noise": {"kind": "gradient noise"},
            "theorem 2, vanishing steps": {"kind": "vanishing steps"},
            "theorem 2, bounds": {"kind": "bounds"},
        }
        for steps in config.distance_steps:
            for alpha0 in config.distance_alphas:
                key = f"distance, K={steps}, alpha0={alpha0:g}"
                listed[key] = {"kind": "distance", "steps": steps, "alpha0": alpha0}
        for name in CHECKS:
            listed[f"simulated chains, {name}"] = {"kind": "check", "schedule": name}
        names = [method.name for method in well_methods(config)]
        for seed in range(config.seeds):
            for name in (*names, "exact draws"):
                key = f"double well, {name}, seed {seed}"
                listed[key] = {"kind": "well", "method": name, "seed": seed}
        return listed

    def run(
        self, config: ConvergenceConfig, data: Path | None, *, kind: str, **options: Any
    ) -> Record:
        match kind:
            case "rates":
                return exact.rates(config.rate_steps, config.rate_alphas, **options)
            case "distance":
                return exact.distances(**options)
            case "strongly convex":
                return exact.strongly_convex(config.convex_steps)
            case "gradient noise":
                return exact.gradient_noise(config.noise_steps, config.rate_alphas)
            case "vanishing steps":
                return exact.vanishing_steps(config.rate_steps)
            case "bounds":
                return exact.bounds_of_theorem_two(config.rate_steps, config.rate_alphas)
            case "check":
                return check(config.check_chains, **options)
            case _:
                return well(config, **options)


class NoisyGaussian(GaussianTarget):
    """A Gaussian whose gradient comes with independent noise, as that of a minibatch does."""

    def __init__(self, mean: Tensor, covariance: Tensor, noise: float, seed: int) -> None:
        super().__init__(mean, covariance)
        self.noise = noise
        self.generator = torch.Generator().manual_seed(seed)

    def gradient(self, points: Tensor) -> Tensor:
        random = torch.randn(points.shape, generator=self.generator, dtype=points.dtype)
        return super().gradient(points) + self.noise * random.to(points)


def check(chains: int, schedule: str, seed: int = 0) -> Record:
    """Simulated chains beside their exact moments: z-scores, standard normal if those are right.

    Of every coordinate: mean and variance at four steps, and mean and MSE of the plain average of
    theta^2. The standard error of the MSE is that of the chains themselves. Raises ValueError
    where one is beyond LIMIT: then nothing that rests on them is to be believed.
    """
    along = CHECKS[schedule]
    scales = torch.tensor(SCALES, dtype=torch.float64, device=device())
    target = NoisyGaussian(
        torch.zeros_like(scales), torch.diag(scales**2), CHECK_NOISE, seed=seed + 1
    )
    points = scales.new_full((chains, len(SCALES)), START)
    sampler = SGLD([points], CHECK_ALPHA, num_data=1, seed=seed)
    draws = run_density(target, sampler, along).cpu().numpy()
    step_sizes = CHECK_ALPHA * exact.shares(along)
    scores: dict[str, list[float]] = {"mean": [], "variance": [], "average": [], "mse": []}
    for column, scale in enumerate(SCALES):
        moments = sgld_moments(step_sizes, scale, START, 0.0, CHECK_NOISE)
        for step in (0, CHECK_STEPS // 8, CHECK_STEPS // 2, CHECK_STEPS - 1):
            values, spread = draws[step, :, column], moments.variance[step]
            off = values.mean() - moments.mean[step]
            scores["mean"].append(off / sqrt(spread / chains))
            ratio = values.var(ddof=1) / spread
            scores["variance"].append((ratio - 1) / sqrt(2 / (chains - 1)))
        averages = (draws[:, :, column] ** 2).mean(axis=0)
        known = average_of_squares(moments, np.ones(CHECK_STEPS))
        off = averages.mean() - known.mean
        scores["average"].append(off / sqrt(known.variance / chains))
        errors = (averages - scale**2) ** 2
        mse = known.variance + (known.mean - scale**2) ** 2
        scores["mse"].append((errors.mean() - mse) / (errors.std(ddof=1) / sqrt(chains)))
    found = np.abs(np.concatenate(list(scores.values())))
    worst = float(found.max())
    if not worst <= LIMIT:
        raise ValueError(
            f"simulated chains, {schedule}: a z-score of {worst:.3g} against the exact moments, "
            f"limit {LIMIT:g}"
        )
    return {
        "chains": chains,
        "z": {name: rounded(group) for name, group in scores.items()},
        "worst": rounded(worst),
        "limit": LIMIT,
        "false_alarm_rate": rounded(len(found) * erfc(LIMIT / sqrt(2))),
    }


def well_methods(config: ConvergenceConfig) -> list[Method]:
    return methods(config.well_steps, WELL_ALPHA, every=config.well_steps // WELL_LOOKS)


def well(config: ConvergenceConfig, method: str, seed: int) -> Record:
    """Chains from the bottom of the lighter well, and their distance from the density in time."""
    target = DoubleWell(WELL_SCALE, WELL_LIGHT)
    chains = config.well_chains
    quantiles = target.quantiles(chains)
    if method == "exact draws":  # how far as many draws are that have no error but chance
        levels = np.random.default_rng(seed).random((1, chains))
        looks = np.interp(levels, (np.arange(chains) + 0.5) / chains, quantiles)
        steps = [config.well_steps]
    else:
        chosen = next(listed for listed in well_methods(config) if listed.name == method)
        points = torch.full((chains, 1), -1.0, dtype=torch.float64, device=device())
        sampler = SGLD([points], chosen.alpha0, num_data=1, seed=seed)
        looks = run_density(target, sampler, chosen.schedule)[..., 0].cpu().numpy()
        steps = (np.flatnonzero(chosen.schedule.table()["collect"]) + 1).tolist()
    away = [wasserstein(draws, quantiles) for draws in looks]
    return {
        "method": method,
        "steps": steps,
        "barrier": rounded(target.barrier()),
        "w1": rounded([first for first, _ in away]),
        "w2": rounded([second for _, second in away]),
        "light_mass": rounded([(draws < 0).mean() for draws in looks]),
    }
