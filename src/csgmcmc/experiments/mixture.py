"""25 Gaussians: SGLD against cSGLD, with the settings of Zhang et al. 2020.

All chains are rows of one tensor. The target has no data set, so num_data is 1, the loss is U, and
lr is the paper's step size itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from csgmcmc.arguments import check_count
from csgmcmc.chain import Chain, Moment
from csgmcmc.diagnostics import in_mode_mass, mode_coverage, mode_total_variation
from csgmcmc.samplers import SGLD
from csgmcmc.schedules import Cyclical, Decreasing, Schedule
from csgmcmc.targets import Density, Mixture25

PROGRESS_EVERY = 500


@dataclass(frozen=True)
class Method:
    """An update rule is SGLD in both; the schedule makes the method."""

    name: str
    lr: float
    schedule: Schedule


@dataclass(frozen=True)
class MixtureConfig:
    """The paper's settings; `steps` and `chains` may be changed for a shorter run."""

    steps: int = 50_000
    chains: int = 4
    seed: int = 0
    start_within: float = 10.0
    radius: float = 0.25
    more_than: int = 100

    def __post_init__(self) -> None:
        check_count("steps", self.steps, at_least=1)
        check_count("chains", self.chains, at_least=1)
        check_count("seed", self.seed, at_least=0)
        _ = self.methods  # whose schedules check that the steps are enough

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        decreasing = Decreasing(self.steps, gamma=0.55, every=1)
        cyclical = Cyclical(self.steps, cycles=30, exploration=0.25, every=1)
        return (Method("SGLD", 0.05, decreasing), Method("cSGLD", 0.09, cyclical))


@dataclass(frozen=True)
class Score:
    """How well one method's draws match the target, for single chains or all of them pooled."""

    method: str
    chains: str
    modes_covered: float
    in_mode_mass: float
    total_variation: float


def sample(
    config: MixtureConfig, method: Method, on_progress: Callable[[int], None] | None = None
) -> NDArray[np.float32]:
    """Run all chains of `method`; draws of shape (chains, draws, 2)."""
    target = Mixture25()
    starts = torch.Generator().manual_seed(config.seed)
    points = torch.empty(config.chains, target.dimension)
    points.uniform_(-config.start_within, config.start_within, generator=starts)
    model = Density(target, points)
    sampler = SGLD(model.parameters(), lr=method.lr, num_data=1, seed=config.seed)

    def report(moment: Moment) -> None:
        done = moment.tick.step + 1
        if on_progress and (done % PROGRESS_EVERY == 0 or done == config.steps):
            on_progress(done)

    chain = Chain(model, None, None, sampler, method.schedule, on_step=report, progress=False)
    draws = [draw.tensors()["points"] for draw in chain.run()]
    return torch.stack(draws, dim=1).numpy()


def scores(config: MixtureConfig, method: Method, draws: NDArray[np.float32]) -> list[Score]:
    """The mean score of the single chains, and the score of all chains pooled."""
    target = Mixture25()
    modes = target.means.numpy()

    def measure(points: NDArray[np.float32]) -> tuple[float, float, float]:
        return (
            mode_coverage(points, modes, config.radius, config.more_than),
            in_mode_mass(points, modes, radius=3 * target.std),
            mode_total_variation(points, modes),
        )

    single = np.mean([measure(chain) for chain in draws], axis=0)
    pooled = measure(draws.reshape(-1, target.dimension))
    return [
        Score(method.name, "1 chain (mean)", *map(float, single)),
        Score(method.name, f"{config.chains} chains pooled", *pooled),
    ]


def exact_draws(config: MixtureConfig, count: int) -> NDArray[np.float32]:
    """Independent draws from the target itself, for the picture."""
    generator = torch.Generator().manual_seed(config.seed)
    return Mixture25().sample(count, generator).numpy()
